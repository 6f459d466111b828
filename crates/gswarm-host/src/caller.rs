//! Who asks, and what they may do.

/// What a caller may do; each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Viewer,
    Operator,
    Admin,
}

/// Somebody at a door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Owner of the sessions they start.
    pub principal: String,
    pub role: Role,
}

impl Caller {
    /// A caller on this machine.
    pub fn local() -> Self {
        Self { principal: "local".to_owned(), role: Role::Admin }
    }
}
