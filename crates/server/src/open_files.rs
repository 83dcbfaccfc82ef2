//! How many files this process may have open, and so how many connections there can be (SCL-3): a listener that
//! runs out of files would refuse whoever comes, and the database would be next.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files for all else than the connections of nodes and proxies: operators, the database, logs.
const RESERVED: u64 = 512;
/// The fewest connections that are kept, however few files there may be.
const FEWEST: usize = 16;

/// Raises the limit of open files to the most that the system lets this process have, and gives it; `None` is no
/// limit. What cannot be raised stays as it was.
pub(crate) fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, ?current, ?maximum, "the limit of open files cannot be raised");
            current
        }
    }
}

/// How many connections each of so many listeners may have under a limit of open files.
pub(crate) fn connections_within(wanted: usize, listeners: usize, limit: Option<u64>) -> usize {
    let Some(limit) = limit else { return wanted };
    let each = limit.saturating_sub(RESERVED) / (listeners as u64).max(1);
    wanted.min(usize::try_from(each).unwrap_or(usize::MAX).max(FEWEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_stay_within_the_files_that_there_may_be() {
        for (wanted, listeners, limit, connections) in [
            (20_000, 1, None, 20_000),
            (20_000, 1, Some(1_048_576), 20_000),
            (20_000, 1, Some(4096), 3584),
            (20_000, 2, Some(4096), 1792),
            (20_000, 1, Some(100), FEWEST),
            (1, 1, Some(100), 1),
        ] {
            assert_eq!(connections_within(wanted, listeners, limit), connections, "{limit:?}");
        }
    }

    #[test]
    fn the_limit_is_raised_to_the_most_there_may_be() {
        assert_eq!(raise_limit(), getrlimit(Resource::Nofile).maximum);
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
    }
}
