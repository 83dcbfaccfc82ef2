//! [`ask`]: one probe, once, within its time and [`MAX_PROBE_OUTPUT`].

use std::sync::Arc;
use std::time::Duration;

use activation::{HealthProbe, HealthProbeKind, HealthProbeOutcome, MAX_PROBE_OUTPUT, MetricBound};
use bytes::Bytes;
use host::{Command, End, Host, Program};
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use net::tasks;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http_exchange::{HttpExchangeError, exchange};
use crate::render::chain;

/// How much of what a command prints goes into the journal, in bytes.
const MAX_PRINTED: usize = 300;
/// How much longer than its time a command may take to be ended.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// Asks a probe.
pub(super) async fn ask(probe: &HealthProbe, host: &Arc<Host>) -> HealthProbeOutcome {
    let within = match &probe.kind {
        // Its process group is ended in its time.
        HealthProbeKind::Command { .. } => probe.timeout + ENDED_WITHIN,
        _ => probe.timeout,
    };
    match timeout(within, asked(probe, host)).await {
        Ok(Ok(())) => HealthProbeOutcome::Passed,
        Ok(Err(outcome)) => outcome,
        Err(_) => HealthProbeOutcome::TimedOut,
    }
}

async fn asked(probe: &HealthProbe, host: &Arc<Host>) -> Result<(), HealthProbeOutcome> {
    match &probe.kind {
        HealthProbeKind::Http { url, expect } => {
            let (status, _) = get(url).await?;
            match status.as_u16() == *expect {
                true => Ok(()),
                false => Err(failed(format!("it answers {status}, not {expect}"))),
            }
        }
        HealthProbeKind::Tcp { address } => {
            let connected = TcpStream::connect(address).await;
            connected.map(drop).map_err(|error| failed(format!("{address}: {error}")))
        }
        HealthProbeKind::Command { argv } => {
            let (host, argv, time) = (host.clone(), argv.clone(), probe.timeout);
            let ran = tasks::spawn_blocking(move || run(&host, argv, time)).await;
            ran.unwrap_or_else(|error| Err(failed(chain(&error))))
        }
        HealthProbeKind::Unit { unit } => {
            let (host, unit) = (host.clone(), unit.clone());
            let looked = tasks::spawn_blocking(move || look_at_unit(&host, &unit)).await;
            looked.unwrap_or_else(|error| Err(failed(chain(&error))))
        }
        HealthProbeKind::Metric { url, metric, bound, threshold_milli } => {
            let (status, body) = get(url).await?;
            if status != StatusCode::OK {
                return Err(failed(format!("{url} answers {status}")));
            }
            judge_metric(&String::from_utf8_lossy(&body), metric, *bound, *threshold_milli)
        }
    }
}

fn failed(reason: impl Into<String>) -> HealthProbeOutcome {
    HealthProbeOutcome::Failed { reason: reason.into() }
}

fn run(host: &Host, argv: Vec<String>, time: Duration) -> Result<(), HealthProbeOutcome> {
    let command = Command::new(Program::Argv(argv), time, MAX_PROBE_OUTPUT);
    let finished = host.run(&command).map_err(|error| failed(chain(&error)))?;
    let most = MAX_PROBE_OUTPUT as u64;
    match finished.end {
        _ if finished.stdout.total > most || finished.stderr.total > most => {
            Err(HealthProbeOutcome::TooMuchOutput)
        }
        End::Exited(0) => Ok(()),
        End::TimedOut => Err(HealthProbeOutcome::TimedOut),
        End::Exited(code) => {
            let printed = String::from_utf8_lossy(&finished.stderr.bytes);
            let printed = model::text::beginning(printed.trim(), MAX_PRINTED).to_owned();
            Err(HealthProbeOutcome::Exited { code, printed })
        }
        End::Signaled(signal) => Err(failed(format!("signal {signal} ended it"))),
        End::Cancelled => Err(failed("the agent stops")),
    }
}

fn look_at_unit(host: &Host, unit: &str) -> Result<(), HealthProbeOutcome> {
    let name = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    let properties = host.systemd().unit(&name).map_err(|error| failed(chain(&error)))?;
    match properties.active_state.as_str() {
        "active" => Ok(()),
        _ if properties.load_state == "not-found" => Err(failed(format!("there is no unit {name}"))),
        state => Err(failed(format!("{name} is {state} ({})", properties.sub_state))),
    }
}

/// Asks for a page over HTTP/1.1.
async fn get(url: &str) -> Result<(StatusCode, Bytes), HealthProbeOutcome> {
    let uri: Uri = url.parse().map_err(|error| failed(format!("{url} is no URL: {error}")))?;
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(failed(format!("{url} does not begin with http://HOST")));
    };
    let address = match authority.port() {
        Some(_) => authority.as_str().to_owned(),
        None => format!("{}:80", authority.host()),
    };
    let stream = TcpStream::connect(&address).await.map_err(|error| failed(format!("{address}: {error}")))?;
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let request =
        Request::builder().uri(path).header("host", authority.as_str()).header("connection", "close");
    let request = request.body(Full::new(Bytes::new())).map_err(|error| failed(error.to_string()))?;
    match exchange(Box::new(stream), request, MAX_PROBE_OUTPUT).await {
        Ok(answer) => Ok(answer),
        Err(HttpExchangeError::TooLong) => Err(HealthProbeOutcome::TooMuchOutput),
        Err(error) => Err(failed(format!("{url}: {}", chain(&error)))),
    }
}

/// Whether a metric in the text format of Prometheus is within a bound.
fn judge_metric(
    text: &str,
    metric: &str,
    bound: MetricBound,
    threshold_milli: i64,
) -> Result<(), HealthProbeOutcome> {
    let value = text.lines().find_map(|line| {
        let rest = line.strip_prefix(metric)?;
        // Another metric may begin with the same name, and labels are of another series.
        let value = rest.strip_prefix([' ', '\t'])?.split_whitespace().next()?;
        value.parse::<f64>().ok()
    });
    let value = value.ok_or_else(|| failed(format!("there is no metric {metric}")))?;
    #[expect(clippy::cast_precision_loss, reason = "a threshold is compared with a float that was printed")]
    let threshold = threshold_milli as f64 / 1000.0;
    let is_within = match bound {
        MetricBound::AtMost => value <= threshold,
        MetricBound::AtLeast => value >= threshold,
    };
    match is_within {
        true => Ok(()),
        false => Err(failed(format!("{metric} is {value}, and its threshold is {threshold}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_by_their_whole_name() {
        let text = "# TYPE up gauge\nup_total 7\nup{job=\"a\"} 0\nup 1.5 1700000000\nbroken x\nnan NaN\n";
        let within = |metric: &str, bound, milli| judge_metric(text, metric, bound, milli).is_ok();
        assert!(within("up", MetricBound::AtLeast, 1500) && within("up", MetricBound::AtMost, 1500));
        assert!(!within("up", MetricBound::AtLeast, 1501));
        assert!(within("up{job=\"a\"}", MetricBound::AtMost, 0));
        for missing in ["upp", "u", "broken"] {
            assert!(!within(missing, MetricBound::AtLeast, 0), "{missing}");
        }
        assert!(!within("nan", MetricBound::AtLeast, 0) && !within("nan", MetricBound::AtMost, 0));
    }
}
