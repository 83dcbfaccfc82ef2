//! [`LogControl`]: what is logged, changed while the control plane runs (OPS-4).

use std::fmt;
use std::sync::Arc;

/// Changes the level of logs; belongs to the program that writes them.
#[derive(Clone)]
pub struct LogControl(Arc<Set>);

type Set = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl LogControl {
    /// `set` takes a level by name, and says what is wrong with one that it cannot set.
    pub fn new(set: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> LogControl {
        LogControl(Arc::new(set))
    }

    /// Sets the level.
    pub(crate) fn set(&self, level: &str) -> Result<(), String> {
        (self.0)(level)
    }
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogControl")
    }
}
