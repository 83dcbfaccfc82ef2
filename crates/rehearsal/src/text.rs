//! The report for people.

use std::fmt;
use std::time::Duration;

use model::time::short;

use crate::faults::NodeFault;
use crate::report::{
    BudgetReport, InFlightPeak, NodeForecast, RehearsalOutcome, RehearsalReport, StopReport, WaveReport,
};

/// Of a fleet with at most so many nodes each is shown.
const MAX_SHOWN_NODES: usize = 20;

impl fmt::Display for RehearsalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RehearsalReport { channel, seed, begins, .. } = self;
        writeln!(
            f,
            "channel {channel}, {}, published at {begins}, seed {seed}",
            counted(self.nodes.len(), "node")
        )?;
        self.write_faults(f)?;
        writeln!(f)?;
        table(f, &self.wave_rows())?;
        if self.nodes.len() <= MAX_SHOWN_NODES {
            writeln!(f)?;
            table(f, &node_rows(&self.nodes))?;
        }
        writeln!(f)?;
        self.write_outcome(f)?;
        self.write_peaks(f)?;
        for group in &self.waiting {
            let (count, example) = (counted(group.count, "node"), &group.example);
            writeln!(f, "{count} not on the release: {} ({example})", group.cause)?;
        }
        Ok(())
    }
}

impl RehearsalReport {
    fn write_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shares, counts) = (&self.shares, &self.faults);
        let kinds = [
            (shares.fail, counts.fail, "fail their probes"),
            (shares.offline, counts.offline, "offline"),
            (shares.slow, counts.slow, "slow"),
            (shares.seldom, counts.seldom, "call once an hour"),
            (shares.cut_off, counts.cut_off, "cut off by the release"),
        ];
        let told: Vec<String> = kinds
            .iter()
            .filter(|(share, ..)| !share.is_zero())
            .map(|(share, count, what)| format!("{share} {what} ({count})"))
            .collect();
        match told.is_empty() {
            true => writeln!(
                f,
                "nothing goes wrong: --fail, --offline, --slow, --seldom and --cut-off say what does"
            ),
            false => writeln!(f, "goes wrong: {}", told.join(", ")),
        }
    }

    fn write_outcome(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasts = span(self.lasts_secs);
        match (self.outcome, &self.stop) {
            (RehearsalOutcome::Through, _) => writeln!(f, "it is through after {lasts}")?,
            (_, Some(stop)) => self.write_stop(f, stop)?,
            (_, None) => writeln!(f, "it is not through after 400 days")?,
        }
        let unseen = self.faults.unseen;
        if unseen > 0 {
            writeln!(
                f,
                "warning: {} not well and have no enforcing probe, so nobody sees it: they are confirmed",
                are(unseen, "node")
            )?;
        }
        Ok(())
    }

    fn write_stop(&self, f: &mut fmt::Formatter<'_>, stop: &StopReport) -> fmt::Result {
        let StopReport { at_secs, wave, failed, allowed, example, begun, .. } = stop;
        writeln!(
            f,
            "it stops after {}: {} of wave {wave} failed, and {allowed} may; one is {example}",
            span(*at_secs),
            counted(usize::try_from(*failed).unwrap_or(usize::MAX), "node")
        )?;
        let of = |count: fn(&WaveReport) -> usize| self.waves.iter().map(count).sum::<usize>();
        let (confirmed, failed) = (of(|wave| wave.confirmed), of(|wave| wave.failed));
        let then = match self.outcome {
            RehearsalOutcome::WentBack => format!("all of them are back after {}", span(self.lasts_secs)),
            _ => format!(
                "{} confirmed and {failed} failed, which stay on the release; {} back on the one before",
                be(confirmed),
                be(of(|wave| wave.returned))
            ),
        };
        writeln!(f, "{} begun by then; at the end {then}", had(*begun, "node"))
    }

    fn write_peaks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let InFlightPeak { most, at_secs: Some(at) } = self.in_flight {
            writeln!(f, "worst moment: {} in flight, after {}", counted(most, "node"), span(at))?;
        }
        for BudgetReport { of, nodes, limit, peak } in &self.budgets {
            let when = peak.at_secs.map(|at| format!(", after {}", span(at))).unwrap_or_default();
            match *nodes {
                0 => writeln!(f, "budget `{of}`: no node is in it")?,
                nodes => writeln!(
                    f,
                    "budget `{of}`: {} of {nodes} may be in flight, {} {}{when}",
                    limit.min(&nodes),
                    peak.most,
                    if peak.most == 1 { "was" } else { "were" }
                )?,
            }
        }
        Ok(())
    }

    fn wave_rows(&self) -> Vec<Vec<String>> {
        let head = [
            "wave",
            "nodes",
            "opens",
            "ends",
            "confirmed",
            "failed",
            "back",
            "offline",
            "waiting",
            "stops at",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.waves.iter().map(|wave| {
            let stops = wave.stops_at.map_or_else(|| "never".to_owned(), |count| counted(count, "failure"));
            let counts = [wave.confirmed, wave.failed, wave.returned, wave.offline, wave.waiting];
            let mut row = vec![wave.name.clone(), wave.nodes.to_string()];
            row.extend([wave.opened_secs, wave.ended_secs].map(offset));
            row.extend(counts.map(|count| count.to_string()));
            row.push(stops);
            row
        }));
        rows
    }
}

fn node_rows(nodes: &[NodeForecast]) -> Vec<Vec<String>> {
    let head = ["node", "wave", "begins", "switched", "ends", "state", "goes wrong"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(nodes.iter().map(|node| {
        let fault = node.fault.map(|fault| match fault {
            NodeFault::Fails => "fails",
            NodeFault::Offline => "offline",
            NodeFault::CutOff => "cut off",
        });
        let wrong: Vec<&str> = fault
            .into_iter()
            .chain(node.slow.then_some("slow"))
            .chain(node.seldom.then_some("calls seldom"))
            .collect();
        let mut row = vec![node.hostname.to_string(), node.wave.clone()];
        row.extend([node.began_secs, node.switched_secs, node.ended_secs].map(offset));
        row.extend([state_word(node).to_owned(), wrong.join(", ")]);
        row
    }));
    rows
}

fn state_word(node: &NodeForecast) -> &'static str {
    use rollout::NodeRolloutState::{Activating, Converged, Deferred, Failed, Pending, Reverted, Soaking};
    match node.state {
        Pending => "not changed",
        Activating => "activating",
        Soaking => "soaking",
        Converged => "confirmed",
        Deferred => "waits for its boot",
        Failed => "failed",
        Reverted => "back",
    }
}

/// The most seconds that are told in hours: those of four days.
const MOST_IN_HOURS: u64 = 4 * 86_400;

/// A time since the begin: seconds below two minutes, then in the two largest units.
fn span(secs: u64) -> String {
    let (days, hours, minutes) = (secs / 86_400, secs / 3600, secs / 60 % 60);
    match secs {
        0..3600 => short(Duration::from_secs(secs)),
        3600..=MOST_IN_HOURS => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {} h", hours % 24),
    }
}

fn offset(secs: Option<u64>) -> String {
    secs.map_or_else(|| "-".to_owned(), |secs| format!("+{}", span(secs)))
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn are(count: usize, noun: &str) -> String {
    format!("{} {}", counted(count, noun), if count == 1 { "is" } else { "are" })
}

/// `1 is`, `2 are`.
fn be(count: usize) -> String {
    format!("{count} {}", if count == 1 { "is" } else { "are" })
}

fn had(count: usize, noun: &str) -> String {
    format!("{} had", counted(count, noun))
}

/// Columns as wide as their widest cell, two spaces apart.
fn table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  "));
        writeln!(f, "{}", cells.collect::<String>().trim_end())?;
    }
    Ok(())
}
