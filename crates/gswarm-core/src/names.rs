//! Names of nodes: a name belongs to the first machine that used it.

use std::collections::BTreeMap;

use gswarm_types::{NodeId, NodeName};
use serde::{Deserialize, Serialize};

/// Names and the machines they stand for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NameBook {
    names: BTreeMap<NodeName, NodeId>,
}

/// The name a node goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub name: NodeName,
    /// True when the book changed and must be written before the name is told.
    pub is_new: bool,
}

impl NameBook {
    /// Binds the wished name, or the next free one when another machine has it.
    pub fn bind(&mut self, node: NodeId, wish: &NodeName) -> Binding {
        let mut name = wish.clone();
        let mut number = 1_u32;
        loop {
            match self.names.get(&name) {
                Some(owner) if *owner == node => return Binding { name, is_new: false },
                Some(_) => {
                    number = number.saturating_add(1);
                    name = wish.numbered(number);
                },
                None => {
                    self.names.insert(name.clone(), node);
                    return Binding { name, is_new: true };
                },
            }
        }
    }

    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.names.iter().find(|(known, _)| known.as_str() == name).map(|(_, node)| *node)
    }

    /// The names of one machine; the last bound is not special.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeName, NodeId)> {
        self.names.iter().map(|(name, node)| (name, *node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(last: u8) -> NodeId {
        format!("00000000-0000-7000-8000-0000000000{last:02}").parse().unwrap()
    }

    #[test]
    fn a_second_machine_gets_a_number() {
        let mut book = NameBook::default();
        let wish = NodeName::new("gpu").unwrap();
        assert_eq!(book.bind(node(1), &wish).name.as_str(), "gpu");
        assert_eq!(book.bind(node(2), &wish).name.as_str(), "gpu-2");
        assert_eq!(book.bind(node(3), &wish).name.as_str(), "gpu-3");
        assert_eq!(
            book.bind(node(2), &wish),
            Binding { name: "gpu-2".parse().unwrap(), is_new: false }
        );
        assert_eq!(book.find("gpu-3"), Some(node(3)));
    }
}
