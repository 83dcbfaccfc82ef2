//! `muster key rotate` and `retire`: the next version of the trust document.
//!
//! ```text
//! new key staged as NAME.next -> version signed, published -> NAME kept as NAME.previous, NAME.next in its place
//! ```
//!
//! What is cut off in between changes nothing before the version is published; after it, the next call puts the
//! key files in rotator.

use std::path::Path;
use std::time::{Duration, Instant};

use net::BelievedAuthority;
use serde::Serialize;
use server::Credentials;
use server::api::authority::{STAGE_AUTHORITY, StagedAuthority};
use server::api::operation::Empty;
use server::api::{self, AddTrust, TrustView};
use server::authority::staged_key;
use server::posture::TRUST;
use server::trust_chain::ChainDocuments;
use trust::chain::{self, ChainHead, SlotChange, SlotName};
use trust::{PublicKey, Slots, TrustDocument};

use super::file::LabKey;
use super::operator_authority;
use super::proven;
use super::show::uptake;
use super::{FleetKeyError, RetireArgs, RotateArgs};
use crate::clock::now;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::next_step::muster;
use crate::operator::Operator;
use crate::screen::{Screen, plural};
use crate::signer::{self, FleetSigner};

/// How long the control plane may take to read its directory again.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(20);
/// Nodes that a question names.
const NAMED: usize = 5;
/// How often it is asked meanwhile.
const ASK_EVERY: Duration = Duration::from_millis(200);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RotatedView {
    version: u64,
    slot: &'static str,
    current: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    trust: TrustView,
    next: Vec<String>,
}

/// The control plane, and its directory where that is here.
pub(super) struct KeyRotator {
    pub(super) operator: Operator,
    credentials: Credentials,
    dir: std::path::PathBuf,
}

impl KeyRotator {
    pub(super) async fn of(connect: &Connect) -> Result<KeyRotator, Failure> {
        let (path, credentials) = connect.credentials()?;
        let operator = Operator::dial(&credentials).await?;
        let dir = path.parent().unwrap_or(Path::new(".")).to_owned();
        Ok(KeyRotator { operator, credentials, dir })
    }

    pub(super) async fn trust(&self) -> Result<TrustView, Failure> {
        Ok(self.operator.call(&api::TRUST, Empty {}).await?)
    }

    /// The newest version. Key files of a rotation that was cut off are put in rotator.
    pub(super) async fn newest(&self) -> Result<ChainHead, Failure> {
        let view = self.trust().await?;
        let newest = proven::newest(&view, self.credentials.trust.as_ref())?;
        let head = newest.ok_or(FleetKeyError::NoDirectory(self.dir.clone()))?;
        self.put_in_place(&head.document)?;
        Ok(head)
    }

    fn put_in_place(&self, document: &TrustDocument) -> Result<(), FleetKeyError> {
        let mut keys = SlotName::ALL.into_iter().filter_map(|slot| LabKey::of(&self.dir, slot));
        keys.try_for_each(|key| key.put_in_place(document))
    }

    /// The CA that is to count next. A CA that was stolen could certify whoever answers here, with a key of their own: it is
    /// compared with what lies in the control plane's directory, or with the id that somebody read there.
    async fn staged_authority(&self, named: Option<&Path>) -> Result<StagedAuthority, Failure> {
        let staged = self.operator.call(&STAGE_AUTHORITY, Empty {}).await?;
        let id = staged.next.id();
        let known = match named {
            Some(named) => named.to_str() == Some(id.as_str()),
            None => match staged_key(&self.dir).map_err(FleetKeyError::Directory)? {
                Some(here) => here == staged.next,
                None => return Err(FleetKeyError::UnseenAuthority { id }.into()),
            },
        };
        let joined = BelievedAuthority::Keys(Box::new(Slots::of(staged.current)));
        // By the first document that names CAs alone; later ones name both themselves.
        let is_first =
            self.credentials.trust.as_ref().is_none_or(|trust| trust.certificate_authority.is_none());
        match known && (!is_first || joined.has_certificate(&self.credentials.ca_pem)) {
            true => Ok(staged),
            false => Err(FleetKeyError::OtherAuthority { id }.into()),
        }
    }

    /// The root key that may sign what follows a version.
    pub(super) fn root_key(
        &self,
        named: Option<&Path>,
        head: &ChainHead,
    ) -> Result<FleetSigner, FleetKeyError> {
        let path = named.map_or_else(|| self.dir.join(server::posture::ROOT_KEY), Path::to_owned);
        let key = FleetSigner::open(&path)?.ok_or(FleetKeyError::NoRoot(path))?;
        match head.document.root.keys().any(|known| *known == key.public()) {
            true => Ok(key),
            false => Err(FleetKeyError::NotRoot { key: key.public().id(), version: head.document.version }),
        }
    }

    /// What a channel points to, and nodes believe now, must be believed by the next version too: nodes that join then
    /// take nothing else.
    async fn refuse_if_used(&self, now: &TrustDocument, next: &TrustDocument) -> Result<(), Failure> {
        let published = self.operator.call(&api::HEAD, Empty {}).await?;
        let still = |(channel, header): (&model::Channel, &model::exchange::Signed)| {
            let counts = |by: &TrustDocument| by.header(header).is_ok();
            (counts(now) && !counts(next)).then(|| channel.clone())
        };
        match published.headers.iter().find_map(still) {
            Some(channel) => Err(FleetKeyError::StillUsed { channel }.into()),
            None => Ok(()),
        }
    }

    async fn publish(
        &self,
        next: &TrustDocument,
        root: &FleetSigner,
        slot: SlotName,
        then: Vec<String>,
        screen: Screen,
    ) -> Result<Exit, Failure> {
        self.add(next, root).await?;
        self.put_in_place(next)?;
        self.tell(next, slot, then, screen).await
    }

    /// Signs the next version, and has the control plane hand it on.
    pub(super) async fn add(&self, next: &TrustDocument, root: &FleetSigner) -> Result<(), Failure> {
        let link = signer::sign(next, &[root]).map_err(FleetKeyError::Sign)?;
        self.operator.call(&api::ADD_TRUST, AddTrust { link }).await?;
        Ok(())
    }

    async fn tell(
        &self,
        next: &TrustDocument,
        slot: SlotName,
        then: Vec<String>,
        screen: Screen,
    ) -> Result<Exit, Failure> {
        let slots = slot.of(next).unwrap_or(&next.release);
        let view = RotatedView {
            version: next.version,
            slot: slot.as_str(),
            current: slots.current.to_string(),
            previous: slots.previous.map(|key| key.to_string()),
            trust: self.trust().await?,
            next: then,
        };
        Ok(screen.result(&view, || text(&view, slots))?)
    }
}

fn text(view: &RotatedView, slots: &Slots) -> String {
    let previous = slots.previous.map_or_else(
        || "no other counts".to_owned(),
        |key| format!("previous {}, which still counts", key.id()),
    );
    let mut out = format!(
        "trust document {}: {} key {} ({}); {previous}\n",
        view.version,
        view.slot,
        slots.current.id(),
        slots.current.algorithm()
    );
    if let Some(limit) = slots.reject_before {
        out.push_str(&format!("what {} keys signed before {limit} counts no more\n", view.slot));
    }
    out.push_str(&format!("{}; they take it up at their next contact\n", uptake(&view.trust)));
    for next in &view.next {
        out.push_str(&format!("next: {next}\n"));
    }
    out
}

pub(super) async fn rotate(args: &RotateArgs, connect: &Connect, screen: Screen) -> Result<Exit, Failure> {
    let Some(slot) = args.slot.slot() else {
        return operator_authority::rotate(args, connect, screen).await;
    };
    let rotator = KeyRotator::of(connect).await?;
    let mut head = rotator.newest().await?;
    let root = rotator.root_key(args.root_key.as_deref(), &head)?;
    let is_changing = slot.of(&head.document).is_some_and(|slots| slots.previous.is_some());
    if slot == SlotName::CertificateAuthority && is_changing {
        // The CA before the previous one counts no more then.
        confirm_of_before(&rotator.trust().await?, args.yes, screen)?;
    }
    let key = match (&args.to, LabKey::of(&rotator.dir, slot)) {
        (Some(path), Some(_)) => signer::public(path)?,
        (None, Some(key)) => key.stage(&head.document)?.public(),
        (named, None) => {
            let staged = rotator.staged_authority(named.as_deref()).await?;
            // The first document that names CAs names the one that nodes joined with too.
            head.document.certificate_authority.get_or_insert(Slots::of(staged.current));
            staged.next
        }
    };
    let change = if args.drop_previous { SlotChange::Replace(key) } else { SlotChange::Rotate(key) };
    let next =
        chain::next_version(&head, slot, change, args.reject_before, now()).map_err(FleetKeyError::Next)?;
    if slot == SlotName::Release && !args.drop_previous {
        rotator.refuse_if_used(&head.document, &next).await?;
    }
    let mut then = after_rotation(slot, args, &next);
    then.extend(still_signs(&head.document, &next));
    rotator.publish(&next, &root, slot, then, screen).await
}

fn after_rotation(slot: SlotName, args: &RotateArgs, next: &TrustDocument) -> Vec<String> {
    let named = |option: &str| match &args.to {
        Some(path) => format!(" {option} {}", model::text::shell_word(&path.display().to_string())),
        None => String::new(),
    };
    let mut then = match slot {
        SlotName::Release => {
            vec![format!("{}{}, which signs with the new key", muster("publish"), named("--key"))]
        }
        SlotName::Beacon => vec![format!("{}{}", muster("beacon"), named("--key"))],
        SlotName::ControlPlane => match &args.to {
            Some(path) => vec![format!(
                "put the new key into the control plane's directory as {}: mv {} ...",
                server::posture::CONTROL_PLANE_KEY,
                model::text::shell_word(&path.display().to_string())
            )],
            None => Vec::new(),
        },
        SlotName::CertificateAuthority => vec![
            "proxies that end TLS need new certificates: muster proxy issue".to_owned(),
            "foreign clients need the new CA certificate, node-ca.pem of the control plane's directory"
                .to_owned(),
            "where tokens are minted elsewhere: copy enroll.json of the control plane's directory there; tokens that are not \
             used yet name the CA before: mint them anew"
                .to_owned(),
        ],
        SlotName::Root => vec![format!(
            "mint tokens with the new key: muster token mint HOSTNAME{}",
            if args.to.is_some() { named("--root-key") + " --enroll enroll.json" } else { String::new() }
        )],
    };
    // A fleet's first key of its use has none before it.
    if slot.of(next).is_some_and(|slots| slots.previous.is_some()) {
        let and = match slot {
            SlotName::CertificateAuthority => " and has a certificate of the new CA",
            _ => "",
        };
        then.push(format!(
            "once {} says that every node holds document {}{and}: {}",
            muster("key show"),
            next.version,
            muster(&format!("key retire {}", slot.as_str()))
        ));
    }
    then
}

/// A release key that counts no more may be a signer of channels with a threshold: there it counts on.
fn still_signs(before: &TrustDocument, next: &TrustDocument) -> Vec<String> {
    let dropped: Vec<&PublicKey> =
        before.release.keys().filter(|key| !next.release.keys().any(|known| known == *key)).collect();
    let signs = next.thresholds.iter().flat_map(|(channel, threshold)| {
        let signers = threshold.signers.iter().filter(|signer| dropped.contains(signer));
        signers.map(move |signer| {
            format!(
                "key {} goes on signing for channel {channel}, as one of its signers; to end that: {}",
                signer.id(),
                muster(&format!("key threshold {channel} {} --signer ...", threshold.signatures))
            )
        })
    });
    signs.collect()
}

pub(super) async fn retire(args: &RetireArgs, connect: &Connect, screen: Screen) -> Result<Exit, Failure> {
    let Some(slot) = args.slot.slot() else {
        return operator_authority::retire(args, connect, screen).await;
    };
    let rotator = KeyRotator::of(connect).await?;
    let head = rotator.newest().await?;
    let root = rotator.root_key(args.root_key.as_deref(), &head)?;
    let next =
        chain::next_version(&head, slot, SlotChange::Retire, None, now()).map_err(FleetKeyError::Next)?;
    if slot == SlotName::Release {
        rotator.refuse_if_used(&head.document, &next).await?;
    }
    if slot == SlotName::CertificateAuthority {
        confirm_of_before(&rotator.trust().await?, args.yes, screen)?;
    }
    rotator.publish(&next, &root, slot, still_signs(&head.document, &next), screen).await
}

/// Nodes with a certificate of the CA that is to count no more get another one by their key, if their agent knows how to.
fn confirm_of_before(view: &TrustView, yes: bool, screen: Screen) -> Result<(), Failure> {
    let Some(of_before) = view.certificates.as_ref().filter(|of_before| of_before.of_before > 0) else {
        return Ok(());
    };
    let names: Vec<&str> = of_before.nodes.iter().take(NAMED).map(|node| node.as_str()).collect();
    let what = format!(
        "{} ({}{}) still {} a certificate of the CA before: an agent of this version gets another one by its key, \
         one of before is shut out until it is upgraded",
        plural(of_before.of_before, "node"),
        names.join(", "),
        if of_before.of_before > names.len() { ", ..." } else { "" },
        if of_before.of_before == 1 { "has" } else { "have" },
    );
    Ok(screen.confirm(&what, yes)?)
}

pub(super) async fn new_chain(args: &RotateArgs, connect: &Connect, screen: Screen) -> Result<Exit, Failure> {
    if args.slot.slot() != Some(SlotName::Root) {
        return Err(FleetKeyError::OnlyRoot.into());
    }
    let rotator = KeyRotator::of(connect).await?;
    if !rotator.dir.join(TRUST).exists() {
        return Err(FleetKeyError::NoDirectory(rotator.dir).into());
    }
    let head = rotator.newest().await?;
    let key = match &args.to {
        Some(path) => FleetSigner::open(path)?.ok_or_else(|| FleetKeyError::NotAKey(path.clone()))?,
        None => {
            let lab = LabKey::of(&rotator.dir, SlotName::Root).ok_or(FleetKeyError::OnlyRoot)?;
            lab.stage_anew(&head.document)?.into()
        }
    };
    let change = SlotChange::Replace(key.public());
    let next = chain::next_version(&head, SlotName::Root, change, args.reject_before, now());
    let next = next.map_err(FleetKeyError::Next)?;
    let nodes: usize = {
        let view = rotator.trust().await?;
        view.holding.iter().map(|held| held.nodes).sum::<usize>() + view.unheard
    };
    let what = format!("{} will take no release up until each is given a new token", plural(nodes, "node"));
    screen.confirm(&what, args.yes)?;
    let link = signer::sign(&next, &[&key]).map_err(FleetKeyError::Sign)?;
    let documents = ChainDocuments::read(&rotator.dir).map_err(FleetKeyError::Directory)?;
    documents
        .with_link(link)
        .map_err(FleetKeyError::Chain)?
        .write(&rotator.dir)
        .map_err(FleetKeyError::Directory)?;
    wait(&rotator, &key.public()).await?;
    rotator.put_in_place(&next)?;
    let then = vec![
        "for each node: muster token mint HOSTNAME; then on it: muster-agent join --token-file FILE"
            .to_owned(),
    ];
    rotator.tell(&next, SlotName::Root, then, screen).await
}

/// Until the control plane says that this root key counts.
async fn wait(rotator: &KeyRotator, root: &PublicKey) -> Result<(), Failure> {
    let began = Instant::now();
    while began.elapsed() < TAKEN_UP_WITHIN {
        let view = rotator.trust().await?;
        if view.versions.last().is_some_and(|newest| newest.document.root.current == *root) {
            return Ok(());
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    Err(FleetKeyError::NotTakenUp.into())
}
