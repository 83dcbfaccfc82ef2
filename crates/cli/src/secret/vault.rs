//! Asking an HTTP API as HashiCorp Vault has it: a key-value engine, version 2 (SEC-2).

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use net::download::{Download, DownloadError, DownloadRequest};
use net::proxy::ProxySettings;
use zeroize::Zeroizing;

use super::source::{SecretSettings, SecretValue, SourceAnswer, SourceError};

/// The longest answer, in bytes: a value with what surrounds it.
const MAX_ANSWER: u64 = 512 * 1024;
/// Where the certificates of the machine's CAs lie.
const CA_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What the API has below `path` under a name.
pub(super) fn ask(
    settings: &SecretSettings,
    url: &str,
    path: &str,
    name: &str,
    timeout: Duration,
) -> Result<SourceAnswer, SourceError> {
    within(timeout, request(settings, url, path, name, timeout)?)
}

fn request(
    settings: &SecretSettings,
    url: &str,
    path: &str,
    name: &str,
    timeout: Duration,
) -> Result<DownloadRequest, SourceError> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".vault-token"));
    let token = settings.vault_token.clone().or_else(|| std::env::var("VAULT_TOKEN").ok());
    let token = token.filter(|token| !token.is_empty());
    let token = token.or_else(|| fs::read_to_string(home?).ok()).ok_or(SourceError::NoToken)?;
    let mut headers = vec![("X-Vault-Token".to_owned(), token.trim().to_owned())];
    headers.extend(std::env::var("VAULT_NAMESPACE").ok().map(|name| ("X-Vault-Namespace".to_owned(), name)));
    let (mount, below) = path.split_once('/').ok_or(SourceError::Form)?;
    let roots = std::env::var_os("VAULT_CACERT").map_or_else(|| PathBuf::from(CA_FILE), PathBuf::from);
    Ok(DownloadRequest {
        url: format!("{url}/v1/{mount}/data/{below}/{name}"),
        headers,
        // An address of this machine needs none.
        roots_pem: fs::read(roots).unwrap_or_default(),
        from: 0,
        max_size: MAX_ANSWER,
        timeout,
        proxies: ProxySettings::from_environment(),
    })
}

/// Fetches on a thread of its own, and goes on without it when its time is over.
fn within(timeout: Duration, request: DownloadRequest) -> Result<SourceAnswer, SourceError> {
    let (tell, told) = channel();
    thread::spawn(move || drop(tell.send(fetch(request))));
    told.recv_timeout(timeout).unwrap_or(Err(SourceError::Hangs(timeout)))
}

fn fetch(request: DownloadRequest) -> Result<SourceAnswer, SourceError> {
    let timeout = request.timeout;
    let mut download = match Download::open(request) {
        Ok(download) => download,
        Err(DownloadError::Status { status, .. }) if status.as_u16() == 404 => {
            return Ok(SourceAnswer::NotThere);
        }
        Err(DownloadError::TooLarge { .. }) => return Ok(SourceAnswer::TooLarge),
        Err(DownloadError::Timeout { .. }) => return Err(SourceError::Hangs(timeout)),
        Err(error) => return Err(SourceError::Fetch(error)),
    };
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_ANSWER as usize + 1));
    let read = download.by_ref().take(MAX_ANSWER + 1).read_to_end(&mut bytes);
    if read.is_err() {
        return Err(SourceError::Hangs(timeout));
    }
    if bytes.len() as u64 > MAX_ANSWER {
        return Ok(SourceAnswer::TooLarge);
    }
    vault_value(&bytes).map(SourceAnswer::Value).ok_or(SourceError::Form)
}

/// The value in the answer of a key-value engine, version 2.
fn vault_value(bytes: &[u8]) -> Option<SecretValue> {
    let answer: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let fields = answer.get("data")?.get("data")?.as_object()?;
    let value = fields.get("value").or_else(|| fields.values().next().filter(|_| fields.len() == 1))?;
    Some(Zeroizing::new(value.as_str()?.as_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_value_or_one_field() {
        let value =
            |text: &str| vault_value(text.as_bytes()).map(|value| String::from_utf8(value.to_vec()).unwrap());
        assert_eq!(value(r#"{"data":{"data":{"value":"a","b":"c"}}}"#), Some("a".into()));
        assert_eq!(value(r#"{"data":{"data":{"password":"a"}}}"#), Some("a".into()));
        for wrong in ["", "{}", r#"{"data":{"data":{"a":"b","c":"d"}}}"#, r#"{"data":{"data":{"value":1}}}"#]
        {
            assert_eq!(value(wrong), None, "{wrong}");
        }
    }
}
