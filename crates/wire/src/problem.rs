//! Problems: RFC 9457 with a stable code and a request id (WIR-2).

use model::text::beginning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The content type of problems.
pub const PROBLEM_JSON: &str = "application/problem+json";

macro_rules! codes {
    ($($variant:ident $code:literal $status:literal $title:literal $help:literal)*) => {
        /// Every refusal that the control plane can give; the code never changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $title] $variant,)*
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The stable text.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $code,)* }
            }

            /// The HTTP status.
            pub fn status(self) -> u16 {
                match self { $(Code::$variant => $status,)* }
            }

            /// What it means, in a few words.
            pub fn title(self) -> &'static str {
                match self { $(Code::$variant => $title,)* }
            }

            /// What to do about it.
            pub fn help(self) -> &'static str {
                match self { $(Code::$variant => $help,)* }
            }
        }
    };
}

codes! {
    ProtocolVersion "protocol-version" 400 "The protocol version is missing or not spoken here"
        "Both sides must send `Muster-Protocol: 1`. Upgrade the older of agent and control plane; the control plane speaks N and N+1 side by side."
    AgentTooOld "agent-too-old" 400 "The agent is older than this control plane serves"
        "Install a newer muster-agent on the node: the detail says which. The fleet's own minimum is `minimum_agent` in fleet.yaml."
    BadBody "bad-body" 400 "The body cannot be read"
        "The request was cut off or is not the JSON expected here. If the agent and the control plane are both Muster, look for a proxy that changes bodies."
    BadQuery "bad-query" 400 "The query of the URL cannot be read"
        "docs/protocol.md names what each route takes; `wait` is a whole number of seconds."
    BodyTooLarge "body-too-large" 413 "The body is larger than its bound"
        "Each route has its bound, which the detail names; it holds for the body as sent and as unpacked. The agent splits its facts by itself."
    FactTooLarge "fact-too-large" 413 "A fact is larger than one may be"
        "The detail says which, and the bound. An agent of this version makes none; upgrade the agent."
    MediaType "media-type" 415 "The content type is not the one of this route"
        "Send `Content-Type: application/json`; the gRPC routes take `application/grpc`."
    Unsigned "unsigned" 401 "The request is not signed"
        "Every node request is signed with the node's key (RFC 9421) and carries a digest of its body (RFC 9530)."
    BadSignature "bad-signature" 401 "The signature does not hold"
        "The request was changed on its way, or was signed with another key than the one enrolled."
    BadDigest "bad-digest" 401 "The body does not have the digest that was signed"
        "The body was changed on its way. Look for a proxy that changes bodies."
    Skewed "clock-skew" 401 "The request's time is too far from the control plane's"
        "The problem carries the control plane's time; the agent signs again with the offset by itself. Check the node's clock if this stays."
    Replayed "replayed" 401 "The request was already seen"
        "Each signed request counts once. If nobody replays requests, two machines hold one key: enroll one of them anew."
    CertificateRequired "certificate-required" 401 "This route needs a node's certificate"
        "Join first: `muster-agent join --token TOKEN`."
    OperatorRequired "operator-required" 401 "This port is for operators"
        "Name an operator's credentials: `--operator FILE` or MUSTER_OPERATOR. An admin gives them out: `muster operator add NAME`. A node's certificate opens nothing here."
    OperatorRefused "operator-refused" 401 "The operator's credentials do not count, or no more"
        "They were revoked, have ended, or are of another fleet. An admin sees who there is with `muster operator list`, and gives out others: `muster operator add NAME`."
    RoleRequired "role-required" 403 "The operator's role does not allow this"
        "The detail names the role that does. An admin changes a role: `muster operator revoke NAME`, then `muster operator add NAME --role ROLE`."
    OutsideScope "outside-scope" 403 "This is outside of the operator's scope"
        "The detail names the scope: the selector of the nodes that these credentials may see and change. Narrow the selector, or ask an operator of the whole fleet."
    OperatorTaken "operator-taken" 409 "There is an operator of this name with another role or scope"
        "Revoke first, which ends all credentials of that name: `muster operator revoke NAME`. Then add the operator anew."
    LastAdmin "last-admin" 409 "Nobody could administer the fleet any more"
        "Add another admin of the whole fleet first: `muster operator add NAME --role admin`."
    BehindProxy "behind-proxy" 403 "This is not served through a proxy that ends TLS"
        "A stream of two ways, and what nobody signs, counts by the node's own TLS session, which the proxy ends. Through it go signed requests, polls and server-sent events: join with a token of `muster token mint HOSTNAME --proxy URL --fingerprint SHA256:...`, or reach the control plane's node port itself."
    UnknownNode "unknown-node" 401 "The certificate is of a node that is not enrolled"
        "The node was removed, or the control plane's database is another one. Mint a token and join again."
    OtherNode "other-node" 403 "The request is for another node than the certificate"
        "A node reads and reports only for itself."
    NotEntitled "not-entitled" 403 "The node's set does not name this blob"
        "A node may fetch only what its own set names."
    NotFound "not-found" 404 "There is no such thing"
        "Check the name; `list` of `muster node`, `object`, `task`, `workflow`, `rollout` and `release` shows what there is."
    RangeBehindEnd "range-behind-end" 416 "The range begins behind the end of the content"
        "`Content-Range` of the answer has the content's length. What was fetched so far is whole, or of something else."
    MethodNotAllowed "method-not-allowed" 405 "The route does not take this method"
        "docs/protocol.md lists every route with its method."
    TokenMalformed "token-malformed" 400 "The token is not whole"
        "Copy the token as one line, from `muster1.` to its end."
    TokenForged "token-forged" 401 "The token was not signed by this fleet's root key"
        "Mint it with this fleet's root key: `muster token mint HOSTNAME`."
    TokenExpired "token-expired" 401 "The token's time is over, or has not come"
        "Mint a new token, and check both clocks."
    TokenOtherHost "token-other-host" 403 "The token is for another hostname"
        "Mint a token for this hostname, or join with `--hostname` as the token says."
    TokenOtherKey "token-other-key" 403 "The token is for another key"
        "Mint a token with the fingerprint that `muster-agent fingerprint` prints, or, where no proxy ends TLS, with none."
    TokenUnbound "token-unbound" 403 "The token names no key, and a proxy read it on its way"
        "Whoever reads such a token can enroll a key of his own. Mint one that names the host's key, which `muster-agent fingerprint` prints there: `muster token mint HOSTNAME --proxy URL --fingerprint SHA256:...`."
    TokenOutdated "token-outdated" 401 "The token is older than what this control plane knows of tokens"
        "The database was founded anew, or went back to a backup, after the token was minted: whether it was used before is not known. Mint a new one: `muster token mint HOSTNAME`."
    TokenNotListed "token-not-listed" 403 "The token is not in the allowlist"
        "Declare its nonce in tokens.yaml of the fleet repo, then `muster publish`; `muster token mint HOSTNAME --repo DIR` declares it as it mints."
    Revoked "revoked" 403 "The host is revoked: what was issued for it before counts no more"
        "To let the host in again, mint a token now and join: `muster token mint HOSTNAME`, or `muster node replace HOSTNAME` where it was reinstalled."
    ReportRefused "report-refused" 400 "The report of a failed join is refused"
        "Only a trust error and a failed enrollment are told so, by the host and key of a token that was not used. There is nothing to do for the agent."
    TokenUsed "token-used" 409 "The token was used"
        "Each token enrolls one node once. Mint a new one. If it was not this host that used it, somebody else did: `muster node list` shows the node, `muster node revoke HOSTNAME` puts it out."
    GroupTokenSpent "group-token-spent" 409 "The group token was used by as many hosts as it is for"
        "A host that used it may do so again; another one needs another token: `muster token mint --group PATTERN --uses N`."
    JoinPending "join-pending" 403 "The host waits for an operator's approval"
        "On an operator's machine: `muster node list --pending`, compare the fingerprint with what `muster-agent fingerprint` prints on the host, then `muster node approve NAME`. The agent asks again by itself."
    JoinDenied "join-denied" 403 "An operator denied this key"
        "It stays so until an operator forgets it: `muster node deny NAME --forget`. A token that names the key, and a key that the fleet repo declares, are admitted all the same."
    TooManyJoins "too-many-joins" 429 "As many hosts wait for approval as may"
        "So many in all, and of one network. Approve or deny those that wait: `muster node list --pending`. A token that names its host needs no approval."
    AmbiguousJoin "ambiguous-join" 409 "Several keys ask to join under this name"
        "The detail names their fingerprints: name the one that `muster-agent fingerprint` prints on the host."
    KeyNotDeclared "key-not-declared" 403 "The fleet repo declares another key for this host"
        "Join with the key that nodes.yaml declares, or declare this one, publish, and join again. `muster-agent fingerprint` prints what `key:` may say."
    HostnameTaken "hostname-taken" 409 "An active node has this hostname"
        "Where the host was reinstalled: `muster node replace HOSTNAME` mints a token that takes its place. Else remove the old node first: `muster node remove HOSTNAME`."
    KeyTaken "key-taken" 409 "An active node has this key"
        "Two machines hold one key, or the node was enrolled under another name. Remove the state directory of the copy, then join."
    BadCsr "bad-csr" 400 "The certificate request cannot be used"
        "It must be signed by the key that it is for, ed25519 or ecdsa-p256."
    CsrKey "csr-key" 403 "The certificate request is of another key than the node's"
        "A node keeps its key when it renews its certificate. For another key mint a token and join: `muster token mint HOSTNAME`."
    CsrHostname "csr-hostname" 403 "The certificate request is for another hostname than the node's"
        "A node keeps its name when it renews its certificate. For another name mint a token and join: `muster token mint HOSTNAME`."
    RecoveryOff "recovery-off" 403 "This control plane gives no certificate for a key alone"
        "Mint a token, then join on the node: `muster token mint HOSTNAME`. `muster server --certificate-recovery` lets nodes whose certificates have ended come back by themselves."
    RecoveryLate "recovery-late" 403 "The node's certificate ended longer ago than it may be recovered"
        "Mint a token, then join on the node: `muster token mint HOSTNAME`. `muster server --certificate-recovery` sets how long ago that may be."
    OwnName "own-name" 422 "The name is the control plane's own"
        "Whoever has a certificate for it could stand in for the control plane. Name the proxy otherwise: the host name or address by which nodes reach the proxy, and that alone."
    NotReady "not-ready" 503 "The control plane has not loaded its signed artifacts"
        "It answers again in a few seconds; the agent retries by itself. Before the first `muster publish` there is nothing to load."
    Busy "busy" 503 "The control plane has more work than it can hold"
        "Nothing was accepted; the agent keeps its facts and retries."
    StoreUnavailable "store-unavailable" 503 "The database cannot be written"
        "Check the disk of the control plane: full or read-only. Nothing was accepted that is not durable."
    ReleaseRefused "release-refused" 422 "The release is refused"
        "The detail says which check it failed."
    BeaconSignature "beacon-signature" 422 "The proof of freshness is not believed"
        "A beacon counts when the fleet's beacon key or release key signed it. `muster beacon` signs a new one; if it stays on one node, see whether that node joined this fleet."
    BeaconMalformed "beacon-malformed" 422 "The beacon cannot be read"
        "It is signed, and is not what this version knows as a beacon. Sign it with a `muster` of the control plane's version."
    BeaconOtherFleet "beacon-other-fleet" 422 "The beacon is of another fleet"
        "Look which control plane the credentials name, and which fleet's key signs."
    BeaconOtherChannel "beacon-other-channel" 409 "The beacon is of another channel"
        "A channel's beacon says nothing of another channel, and one that nothing is published in has none. `muster beacon` signs for those that there are."
    BeaconOtherRelease "beacon-other-release" 409 "The beacon is for another release"
        "Another release was published meanwhile, or the beacon is for an earlier one that no rollout has in use. `muster beacon` signs for the one that counts now; `muster rollout list` shows the rollouts."
    BeaconFuture "beacon-future" 422 "The beacon is dated in the future"
        "Set the clock that is wrong: that of the machine that signs, of the control plane or of the node. Then `muster beacon` again."
    BeaconOlder "beacon-older" 409 "A later signature is known"
        "Nothing is lowered by an older beacon. If the clock of the machine that signs is behind, set it; else there is nothing to do."
    ListSignature "list-signature" 422 "The signed list is not believed"
        "An allowlist or a set of revocations counts when a release key of the fleet signed it: `muster key show` names those that count. `muster publish` signs what the fleet repo declares."
    ListMalformed "list-malformed" 422 "The signed list cannot be read, or breaks a bound"
        "The detail says what. Sign it with a `muster` of the control plane's version."
    ListOtherFleet "list-other-fleet" 422 "The signed list is of another fleet"
        "Look which control plane the credentials name, and which fleet's key signs."
    ListFuture "list-future" 422 "The signed list is dated in the future"
        "Set the clock that is wrong: that of the machine that signs, or the control plane's. Then publish again."
    ListOlder "list-older" 409 "A later version of the signed list counts"
        "Nothing was changed: what was taken back once does not come back by an earlier list. `muster publish` again signs what the fleet repo declares with the next number."
    SeenRefused "seen-refused" 422 "The node's `seen` document is not believed"
        "The document is not signed by the node's own key, or is of another node. Restart the agent; if it stays, see whether another machine uses this node's certificate."
    FeatureMissing "feature-missing" 422 "The release requires a feature that this control plane does not have"
        "Upgrade the control plane, then the agents, then publish again. `muster diff` shows what the release requires."
    HeadMoved "head-moved" 409 "Another release was published meanwhile"
        "Run `muster publish` again: it starts from the new head."
    TrustMoved "trust-moved" 409 "Another version of the trust document was added meanwhile"
        "Nothing was changed. `muster key show` shows the chain as it is now; then do it again."
    TrustRefused "trust-refused" 422 "The trust document does not lead the chain on"
        "The detail says why. A root key of the newest version must sign the next one: `muster key show`, then `muster key rotate ... --root-key FILE`."
    TrustUnreadable "trust-unreadable" 503 "The control plane cannot read its own trust documents"
        "The detail names the file in its directory. Put it back, from a backup or from where it was moved to; nothing was changed meanwhile."
    Incomplete "incomplete" 409 "Pieces of the release are missing"
        "Run `muster publish` again: it sends only what is missing."
    SyncOff "sync-off" 403 "This node does not synchronize objects"
        "Its release has no `Sync` object, or one whose mode is off. Declare a mode for the node's channel and publish."
    NotDelegated "not-delegated" 403 "The release does not delegate this"
        "Nothing runs on a node that its release does not allow. Add a `Delegation` for it and publish."
    ReadOnly "read-only" 409 "The object is the node's own and only mirrored here"
        "The node is in mode autonomous: change the object on the node, or declare mode managed and publish."
    UnknownKind "unknown-kind" 422 "The node's release does not synchronize this kind"
        "List the kind in the `kinds` of the release's `Sync` object, then publish."
    ObjectTooLarge "object-too-large" 413 "The object is larger than a synchronized object may be"
        "A synchronized object holds at most 1 MiB. Split it, or publish it as a blob of a release."
    UidTwice "uid-twice" 409 "One uid stands under two names"
        "A uid is one object. Leave `metadata.uid` out of the copy, or delete the other object first."
    BadSelector "bad-selector" 422 "The selector cannot be used"
        "The detail says what is wrong with it; `muster help selectors` explains the grammar."
    SelectionMoved "selection-moved" 409 "The selector means other nodes than it did"
        "Nothing was begun. Ask again, look at the number of nodes, and confirm it."
    TaskRefused "task-refused" 422 "The task or workflow cannot be begun"
        "The detail says which bound or rule it breaks."
    RunRefused "run-refused" 422 "The run cannot be requested"
        "The detail says which bound or rule its tags break."
    WrongPhase "wrong-phase" 409 "The task, workflow or rollout does not stand where this could be done"
        "Look at it again: it has moved on, or is over."
    EventGap "event-gap" 409 "Events of the rollout before this one are missing"
        "The problem says from which number on the node sends its events again (`nextNumber`)."
    EventRefused "event-refused" 422 "The event does not go with how the node stands in the rollout"
        "It is not to be sent again. The detail says what does not go; `muster rollout explain NODE` says how the node stands."
    DuplicateIdentity "duplicate-identity" 409 "Two agents use one identity"
        "Two processes work under this node's key, as after a disk was cloned. Until an operator decides neither gets releases, actions or objects. Stop the copy, make it a host of its own (`muster-agent prepare-image`, then join), and say so: `muster node approve NAME --copy-resolved`."
    TooManyStreams "too-many-streams" 429 "There are as many streams as the control plane holds"
        "The agent goes on by polling and tries again. Raise the bound of streams if the host has the memory."
    UpgradeRequired "upgrade-required" 426 "HTTP/1.1 is spoken here only for the upgrade to a WebSocket"
        "Use HTTP/2, or ask for `Upgrade: websocket` on `/v1/agent/stream`."
    Internal "internal" 500 "The control plane failed at this request"
        "Its log names the request id with the cause."
}

/// A refusal, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What it means.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: String,
    /// What is the matter this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do. A command in it stands in backticks, or it begins with one, up to its first
    /// semicolon or the end of the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Names the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The control plane's time, in a refusal for skew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_time: Option<model::Timestamp>,
    /// The lowest request number that will be taken, in a refusal as a replay: an agent whose
    /// clock was set back goes on from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_number: Option<u64>,
    /// Seconds after which to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<u64>,
}

impl Problem {
    /// A problem with what is the matter this time.
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem {
            title: code.title().to_owned(),
            status: code.status(),
            code: code.as_str().to_owned(),
            detail: Some(detail.into()),
            help: Some(code.help().to_owned()),
            request_id: None,
            server_time: None,
            next_number: None,
            retry_after_secs: (code.status() == 503).then_some(RETRY_AFTER_SECS),
        }
    }
}

/// The most bytes of each text of a problem that a client keeps, logs or shows: whoever sent it may have sent megabytes.
pub const MAX_PROBLEM_TEXT: usize = 1024;

impl Problem {
    /// What a client goes by of a problem that it was sent: each text cut at [`MAX_PROBLEM_TEXT`].
    pub fn bounded(self) -> Problem {
        let cut = |text: String| beginning(&text, MAX_PROBLEM_TEXT).to_owned();
        Problem {
            title: cut(self.title),
            code: cut(self.code),
            detail: self.detail.map(cut),
            help: self.help.map(cut),
            request_id: self.request_id.map(cut),
            ..self
        }
    }
}

/// What a 503 asks its reader to wait, in seconds.
pub const RETRY_AFTER_SECS: u64 = 10;

impl From<Code> for Problem {
    fn from(code: Code) -> Problem {
        Problem { detail: None, ..Problem::new(code, "") }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.title, self.code)?;
        match &self.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

impl From<crate::BodyError> for Problem {
    fn from(error: crate::BodyError) -> Problem {
        let code = match error {
            crate::BodyError::TooLarge { .. } => Code::BodyTooLarge,
            crate::BodyError::Coding(_) => Code::MediaType,
            crate::BodyError::Compression | crate::BodyError::Json(_) => Code::BadBody,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<trust::token::TokenError> for Problem {
    fn from(error: trust::token::TokenError) -> Problem {
        use trust::token::TokenError as E;
        let code = match error {
            E::NotAToken | E::Truncated => Code::TokenMalformed,
            E::Forged | E::TooLong => Code::TokenForged,
            E::Expired { .. } | E::FutureDated { .. } => Code::TokenExpired,
            E::OtherHost { .. } | E::OtherGroup { .. } => Code::TokenOtherHost,
            E::Group(_) => Code::TokenForged,
            E::OtherKey => Code::TokenOtherKey,
            E::Unbound => Code::TokenUnbound,
        };
        Problem::new(code, error.to_string())
    }
}
