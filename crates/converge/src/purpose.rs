//! [`RunPurpose`]: why a run is made, where that makes a difference to how it is done.

/// What a run is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunPurpose {
    /// To make the host as declared.
    #[default]
    Converge,
    /// To put back what was changed out of band on a host that was as declared (CNV-7): the next repair waits
    /// for its end.
    Repair,
}
