//! [`ProbeTasks`]: asks the probes of a generation, each on its own and again and again, until it is told to stop.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use activation::{BootId, GenerationId, HealthProbe, HealthProbeResult, ProbeTopology};
use host::Host;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::ActivationCommand;
use super::ask::ask;
use crate::generations::boot_moment;

/// The probes that are asked.
pub(super) struct ProbeTasks {
    runtime: tokio::runtime::Handle,
    host: Arc<Host>,
    results: SyncSender<ActivationCommand>,
    asked: Vec<JoinHandle<()>>,
}

impl ProbeTasks {
    pub(super) fn new(
        runtime: tokio::runtime::Handle,
        host: Arc<Host>,
        results: SyncSender<ActivationCommand>,
    ) -> ProbeTasks {
        ProbeTasks { runtime, host, results, asked: Vec::new() }
    }

    /// Asks these, and no others.
    pub(super) fn start(&mut self, generation: GenerationId, boot: &BootId, probes: &ProbeTopology) {
        self.stop();
        for probe in probes.asked() {
            let asked = AskedProbe {
                probe: probe.clone(),
                generation,
                boot: boot.clone(),
                host: self.host.clone(),
                results: self.results.clone(),
            };
            let task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(asked.ask_on());
            self.asked.push(self.runtime.spawn(task));
        }
    }

    /// Asks none any more. A command that a probe has begun ends in its time, and says nothing.
    pub(super) fn stop(&mut self) {
        self.asked.drain(..).for_each(|asked| asked.abort());
    }
}

struct AskedProbe {
    probe: HealthProbe,
    generation: GenerationId,
    boot: BootId,
    host: Arc<Host>,
    results: SyncSender<ActivationCommand>,
}

impl AskedProbe {
    async fn ask_on(self) {
        loop {
            let next = Instant::now() + self.probe.every;
            if let Ok(began) = boot_moment() {
                let outcome = ask(&self.probe, &self.host).await;
                let result = HealthProbeResult {
                    probe: self.probe.name.clone(),
                    generation: self.generation,
                    boot: self.boot.clone(),
                    began: began.at,
                    outcome,
                };
                // Where there is no room the next result says it.
                let _ = self.results.try_send(ActivationCommand::Probed(result));
            }
            sleep_until(next).await;
        }
    }
}
