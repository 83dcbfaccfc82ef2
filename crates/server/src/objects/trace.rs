//! Trace context as W3C writes it, so that a change can be followed from the operator to the
//! node and back (OPS-4).

use wire::{Code, Problem};

use crate::posture;

/// The context given, or a new one.
///
/// # Errors
/// When the one given is none.
pub(super) fn context(given: Option<String>) -> Result<String, Problem> {
    match given {
        Some(given) if is_traceparent(&given) => Ok(given),
        Some(_) => Err(Problem::new(Code::BadBody, "the trace is no W3C traceparent")),
        None => {
            let bytes = posture::random::<24>().map_err(|_| Problem::from(Code::Internal))?;
            let hex = data_encoding::HEXLOWER.encode(&bytes);
            let (trace, span) = hex.split_at(32);
            Ok(format!("00-{trace}-{span}-01"))
        }
    }
}

/// `00-<32 hex>-<16 hex>-<2 hex>`; of a later version, more may follow.
fn is_traceparent(text: &str) -> bool {
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let mut parts = text.splitn(5, '-');
    let (Some(version), Some(trace), Some(span), Some(flags)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let not_zero = |part: &str| part.bytes().any(|byte| byte != b'0');
    let plain = parts.next().is_none() || (version != "00" && text.len() <= 256);
    let form = hex(version, 2) && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    form && version != "ff" && not_zero(trace) && not_zero(span) && plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_context_is_made_when_none_is_given_and_checked_when_one_is() {
        let made = context(None).unwrap();
        assert!(is_traceparent(&made), "{made}");
        assert_ne!(made, context(None).unwrap());
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(context(Some(good.to_owned())).unwrap(), good);
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert!(context(Some(bad.to_owned())).is_err(), "{bad}");
        }
    }
}
