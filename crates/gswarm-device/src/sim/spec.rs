//! The text form of a simulation: `8xh100,seed=7,scenario=training`.

use std::fmt;
use std::str::FromStr;

use super::model::GpuModel;

/// The most GPUs of one simulated node.
pub const GPUS_MAX: u32 = 64;
const SEED_DEFAULT: u64 = 1;

/// What the simulated GPUs are busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scenario {
    /// The same load all the time.
    Steady,
    /// One job on all GPUs: iterations, checkpoints, data stalls.
    Training,
    /// Each GPU serves its own waves of requests.
    Inference,
    Idle,
    /// Jobs of all kinds, one after the other.
    #[default]
    Mixed,
}

/// GPUs of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimGroup {
    pub count: u32,
    pub model: GpuModel,
}

/// The GPUs of a simulated node and what they do: 1 to `GPUS_MAX` of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimSpec {
    groups: Vec<SimGroup>,
    pub seed: u64,
    pub scenario: Scenario,
    /// True adds one device for each NVLink.
    pub links: bool,
}

/// What a `SimSpec` does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimSpecError {
    #[error("unknown GPU model `{name}`: known are {}", words(&GpuModel::ALL))]
    UnknownModel { name: String },
    #[error("`{text}` is not COUNTxMODEL, such as 8xh100")]
    Group { text: String },
    #[error("a simulated node has 1 to {GPUS_MAX} GPUs, not {count}")]
    Count { count: u64 },
    #[error("unknown option `{text}`: known are seed=N, scenario=NAME and links=true|false")]
    UnknownOption { text: String },
    #[error("`{value}` is not a seed: a seed is a whole number")]
    Seed { value: String },
    #[error("unknown scenario `{name}`: known are {}", words(&Scenario::ALL))]
    UnknownScenario { name: String },
    #[error("links is true or false, not `{value}`")]
    Links { value: String },
}

impl Scenario {
    pub const ALL: [Self; 5] =
        [Self::Steady, Self::Training, Self::Inference, Self::Idle, Self::Mixed];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Training => "training",
            Self::Inference => "inference",
            Self::Idle => "idle",
            Self::Mixed => "mixed",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl SimSpec {
    /// Groups in the order of the GPUs, with the default seed and scenario.
    pub fn new(groups: Vec<SimGroup>) -> Result<Self, SimSpecError> {
        let count: u64 = groups.iter().map(|group| u64::from(group.count)).sum();
        if groups.iter().any(|group| group.count == 0)
            || !(1..=u64::from(GPUS_MAX)).contains(&count)
        {
            return Err(SimSpecError::Count { count });
        }
        Ok(Self { groups, seed: SEED_DEFAULT, scenario: Scenario::default(), links: false })
    }

    pub fn groups(&self) -> &[SimGroup] {
        &self.groups
    }
}

impl FromStr for SimSpec {
    type Err = SimSpecError;

    fn from_str(text: &str) -> Result<Self, SimSpecError> {
        let mut fields = text.split(',').map(str::trim);
        let groups = fields.next().unwrap_or_default();
        let mut spec = Self::new(groups.split('+').map(parse_group).collect::<Result<_, _>>()?)?;
        for field in fields {
            let unknown = || SimSpecError::UnknownOption { text: field.to_owned() };
            let (key, value) = field.split_once('=').ok_or_else(unknown)?;
            match key {
                "seed" => {
                    let seed = value.parse();
                    spec.seed = seed.map_err(|_| SimSpecError::Seed { value: value.to_owned() })?;
                },
                "scenario" => {
                    let scenario = Scenario::ALL.into_iter().find(|known| known.as_str() == value);
                    spec.scenario = scenario
                        .ok_or_else(|| SimSpecError::UnknownScenario { name: value.to_owned() })?;
                },
                "links" => {
                    let links = value.parse();
                    spec.links =
                        links.map_err(|_| SimSpecError::Links { value: value.to_owned() })?;
                },
                _ => return Err(unknown()),
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for SimSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, group) in self.groups.iter().enumerate() {
            let plus = if position == 0 { "" } else { "+" };
            write!(f, "{plus}{}x{}", group.count, group.model)?;
        }
        write!(f, ",seed={},scenario={}", self.seed, self.scenario)?;
        if self.links { f.write_str(",links=true") } else { Ok(()) }
    }
}

fn parse_group(text: &str) -> Result<SimGroup, SimSpecError> {
    let group = || SimSpecError::Group { text: text.to_owned() };
    let (count, model) = text.trim().split_once('x').ok_or_else(group)?;
    let count: u64 = count.parse().map_err(|_| group())?;
    let model = GpuModel::ALL
        .into_iter()
        .find(|known| known.as_str() == model)
        .ok_or_else(|| SimSpecError::UnknownModel { name: model.to_owned() })?;
    let count = u32::try_from(count).map_err(|_| SimSpecError::Count { count })?;
    Ok(SimGroup { count, model })
}

fn words<T: fmt::Display>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
