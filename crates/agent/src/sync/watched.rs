//! The task that keeps links is watched: if it ends by itself, that is shown, and it is begun again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::view::View;

/// The pause before links are kept again, after the task that did so was gone.
pub(super) const AFTER_PANIC: Duration = Duration::from_secs(10);
/// The name of links in problems.
pub(super) const LINKS: &str = "links";

/// Runs what is begun until a stop. When it ends by itself, that is shown, and after a pause it
/// is begun again.
pub(super) async fn watched<F>(
    view: Arc<View>,
    mut stopped: watch::Receiver<bool>,
    pause: Duration,
    begin: impl Fn() -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let mut task = Ending(tokio::spawn(begin()));
        let ended = (&mut task.0).await;
        if *stopped.borrow() {
            return;
        }
        let why = if ended.is_ok() { "ended" } else { "panicked" };
        tracing::error!(why, "the task that keeps links is gone; it is begun again");
        let problem = format!("the task that keeps links {why}, and was begun again; report the agent's log");
        view.problem(LINKS, Some(problem));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = net::accept::stopped(&mut stopped) => return,
        }
    }
}

/// A task that ends with its watcher.
struct Ending(JoinHandle<()>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_task_that_is_gone_is_shown_and_begun_again() {
        let (view, runs) = (Arc::new(View::default()), Arc::new(AtomicUsize::new(0)));
        let (stop, stopped) = watch::channel(false);
        let (seen, ends) = (runs.clone(), stopped.clone());
        let begin = move || {
            let (run, mut ends) = (seen.fetch_add(1, Ordering::SeqCst), ends.clone());
            async move {
                match run {
                    0 => panic!("a defect"),
                    1 => {}
                    _ => net::accept::stopped(&mut ends).await,
                }
            }
        };
        let pause = Duration::from_millis(1);
        let task = tokio::spawn(watched(view.clone(), stopped, pause, begin));
        while runs.load(Ordering::SeqCst) < 3 {
            assert!(!task.is_finished(), "nobody watches");
            tokio::task::yield_now().await;
        }
        assert!(view.shown().problems.contains_key(LINKS));
        stop.send_replace(true);
        task.await.unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }
}
