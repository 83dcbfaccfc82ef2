//! Which start of the agent has the state directory (IDN-10).

use model::AgentInstance;
use spool::StateFile;

use super::{Durable, MODE, StateError, fresh_incarnation};
use crate::render::chain;

/// The file that says so.
const INSTANCE_FILE: &str = "instance.json";

impl Durable {
    /// Begins a start of the agent: its id, after that of the start before it. One that cannot be written down is a start
    /// all the same; the next one names the same start before it.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn begin_instance(&self) -> Result<AgentInstance, StateError> {
        let slot = StateFile::<AgentInstance>::new(&self.disk, self.path.join(INSTANCE_FILE), MODE);
        let before = match slot.load() {
            Ok(kept) => kept.value,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "which start of the agent was before cannot be read");
                None
            }
        };
        let instance =
            AgentInstance { id: fresh_incarnation()?.to_string(), after: before.map(|before| before.id) };
        if let Err(error) = slot.store(&instance) {
            tracing::warn!(error = %chain(&error), "that this start has the state directory cannot be kept");
        }
        Ok(instance)
    }
}
