//! Starting and stopping a control plane.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use model::CertificateValidity;
use net::ServerUrl;
use net::accept::{self, AcceptLimits, stopped};
use net::admission::AddressPrefix;
use net::prefix_journal::PrefixJournal;
use net::proxy_protocol::Balancers;
use net::tls::{self, BelievedClients, ClientAuth, TlsError};
use rustls::ServerConfig;
use store::{FleetMeta, Store, StoreError};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::authority::AuthoritySet;
use crate::fleet_name::FleetName;
use crate::log::LogControl;
use crate::metrics::listener;
use crate::node_port::PortListener;
use crate::operators::authority::OperatorAuthoritySet;
use crate::own_certificate::OwnCertificate;
use crate::posture::{self, DATABASE, FoundError, Founded, Posture};
use crate::refresh::refresh;
use crate::settings::CertificateSettings;
use crate::state::{ControlPlane, PlaneSettings, now};
use crate::streams::StreamConfig;
use crate::work::{self, Orchestrator};
use crate::{node_port, open_files, operator_port, releases, rollouts, streams, upkeep};

/// Connections of operators at once.
const OPERATOR_CONNECTIONS: usize = 256;
/// Connections that may wait in the kernel's queue until they are accepted; the system may allow fewer.
const BACKLOG: u32 = 4096;
/// Bytes of answers that may wait on an operator's connection: some of the largest.
const OPERATOR_UNREAD: usize = 64 * 1024 * 1024;
/// How long what still uses the database may take to end when the control plane stops.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// Nodes read at once at the start.
const NODES_READ: usize = 500;

/// How a control plane is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// Keys, certificates and the database.
    pub dir: PathBuf,
    /// The first part of the fleet's id. A directory of a fleet of another name is refused; absent:
    /// any fleet that is there, and the default name when a fleet is founded.
    pub fleet: Option<FleetName>,
    /// Where nodes call.
    pub node_address: SocketAddr,
    /// Where proxies call that end the TLS sessions of nodes (IDN-4); absent: nowhere.
    pub proxy_address: Option<SocketAddr>,
    /// Where operators call.
    pub operator_address: SocketAddr,
    /// Names and addresses that others reach this control plane by.
    pub names: Vec<String>,
    /// Connections of nodes at once, and as many of proxies; fewer where the system allows fewer open files.
    pub connections: usize,
    /// Load balancers before the node port, which say in a PROXY header for whom they call.
    pub balancers: Balancers,
    /// Where scrapers without a certificate get metrics and health, in plain HTTP; absent:
    /// nowhere, and the operator port has them.
    pub metrics_address: Option<SocketAddr>,
    /// Changes the level of logs; absent where another program decides it.
    pub log: Option<LogControl>,
    /// What the control plane's ends of links go by (SYN-3).
    pub links: StreamConfig,
    /// How long certificates count.
    pub certificates: CertificateSettings,
}

/// Why a control plane could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerStartError {
    /// Its directory cannot be used.
    #[error("the control plane's directory cannot be used")]
    Found(#[from] FoundError),
    /// The database cannot be opened.
    #[error("the database {} cannot be opened", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The database is of another fleet than the keys.
    #[error("the database is of fleet {database}, the keys beside it are of fleet {keys}")]
    OtherFleet {
        /// The database's fleet.
        database: model::FleetId,
        /// The keys' fleet.
        keys: model::FleetId,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The certificate or TLS configuration cannot be made.
    #[error("the TLS configuration cannot be made")]
    Tls(#[source] TlsError),
    /// The control plane's own certificate cannot be made.
    #[error("the control plane's certificate cannot be made for {names:?}")]
    Certificate {
        /// The names asked for.
        names: Vec<String>,
        /// Why.
        #[source]
        source: net::issue::IssueError,
    },
}

type Closed = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A running control plane.
pub struct RunningServer {
    /// Where nodes call.
    pub node_urls: Vec<ServerUrl>,
    /// Where operators call.
    pub operator_url: ServerUrl,
    /// Where proxies call, if anywhere.
    pub proxy_url: Option<ServerUrl>,
    /// The fleet.
    pub fleet: model::FleetId,
    /// Lab or sealed.
    pub posture: Posture,
    /// The directory was empty before.
    pub new: bool,
    /// Where scrapers without a certificate call, if anywhere.
    pub metrics_address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    closed: Closed,
}

impl RunningServer {
    /// Stops accepting, lets requests and links under way end, persists what waits, and lets go
    /// of the database.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            let _ = task.await;
        }
        if tokio::time::timeout(CLOSED_WITHIN, self.closed).await.is_err() {
            tracing::warn!("something still uses the database; it ends with the process");
        }
    }
}

/// Starts a control plane.
///
/// # Errors
/// [`ServerStartError`] says what is in the way.
pub async fn start(config: Config) -> Result<RunningServer, ServerStartError> {
    // First: a start that cannot listen founds no fleet.
    let listeners = Listeners::bind(&config)?;
    let founded = posture::open(&config.dir, config.fleet.as_ref(), now())?;
    OperatorAuthoritySet::settle(&config.dir)?;
    let (store, closed) = open_store(&config, &founded).await?;
    let ServerUrls { nodes: node_urls, operator: operator_url, proxy: proxy_url } =
        listeners.urls(&config)?;
    posture::write_client_files(&config.dir, &founded, &operator_url, &node_urls, now())?;
    let (fleet, posture, new) = (founded.trust.fleet.clone(), founded.posture, founded.new);
    let journal = known_prefixes(&store).await?;
    let (dir, accepting) = (config.dir.clone(), config.clone());
    let plane = plane(store, &dir, founded, settings(config)).await?;
    let limits = PortLimits::of(&accepting, &listeners, &journal, &plane);
    let certified = CertifiedPorts::new(&plane)?;
    let metrics_address = listeners.metrics_address();
    let stop = watch::Sender::new(false);
    let mut tasks = serve(listeners, &plane, limits, &certified, &stop);
    tasks.extend([
        tokio::spawn(upkeep::run(plane.clone(), journal, stop.subscribe())),
        tokio::spawn(Orchestrator::run(plane.clone(), stop.subscribe())),
        tokio::spawn(rollouts::run(plane.clone(), stop.subscribe())),
        tokio::spawn(streams::announce(plane.clone(), stop.subscribe())),
        tokio::spawn(certified.reissue(plane, stop.subscribe())),
    ]);
    Ok(RunningServer {
        node_urls,
        operator_url,
        proxy_url,
        fleet,
        posture,
        new,
        metrics_address,
        stop,
        tasks,
        closed,
    })
}

fn settings(config: Config) -> PlaneSettings {
    let names = own_names(config.names, own_address(config.operator_address));
    PlaneSettings { names, log: config.log, links: config.links, certificates: config.certificates }
}

/// Where others reach a control plane.
struct ServerUrls {
    nodes: Vec<ServerUrl>,
    operator: ServerUrl,
    proxy: Option<ServerUrl>,
}

/// The ports, each with its number; those are absent that are not configured.
struct Listeners {
    nodes: (TcpListener, u16),
    operators: (TcpListener, u16),
    proxies: Option<(TcpListener, u16)>,
    scrapers: Option<(TcpListener, u16)>,
}

impl Listeners {
    fn bind(config: &Config) -> Result<Listeners, ServerStartError> {
        Ok(Listeners {
            nodes: listen(config.node_address)?,
            operators: listen(config.operator_address)?,
            proxies: listen_if(config.proxy_address)?,
            scrapers: listen_if(config.metrics_address)?,
        })
    }

    fn urls(&self, config: &Config) -> Result<ServerUrls, ServerStartError> {
        let nodes = config.names.iter().filter_map(|name| url(name, self.nodes.1)).collect();
        let proxy = config.proxy_address.zip(self.proxies.as_ref());
        let proxy = proxy.and_then(|(address, (_, port))| url(&own_address(address), *port));
        let operator = url(&own_address(config.operator_address), self.operators.1);
        let operator = operator.ok_or_else(|| FoundError::Malformed {
            path: config.dir.clone(),
            what: "the operator address has no URL".to_owned(),
        })?;
        Ok(ServerUrls { nodes, operator, proxy })
    }

    fn metrics_address(&self) -> Option<SocketAddr> {
        self.scrapers.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }
}

/// What connections of each port may take.
struct PortLimits {
    nodes: AcceptLimits,
    operators: AcceptLimits,
    proxies: AcceptLimits,
}

impl PortLimits {
    fn of(
        config: &Config,
        listeners: &Listeners,
        journal: &PrefixJournal,
        plane: &ControlPlane,
    ) -> PortLimits {
        let revoked = &plane.lists.revoked;
        let connections = connections(config.connections, 1 + listeners.proxies.iter().len());
        PortLimits {
            nodes: AcceptLimits {
                connections,
                balancers: config.balancers.clone(),
                journal: journal.clone(),
                revoked: revoked.clone(),
                ..AcceptLimits::default()
            },
            operators: AcceptLimits {
                connections: OPERATOR_CONNECTIONS,
                unread: OPERATOR_UNREAD,
                // Who comes with a token shows it in each request.
                anonymous_age: AcceptLimits::default().age,
                revoked: plane.operators.authority.revoked.clone(),
                ..AcceptLimits::default()
            },
            proxies: AcceptLimits { revoked: revoked.clone(), ..AcceptLimits::of_proxies(connections) },
        }
    }
}

/// Serves each port until the control plane stops.
fn serve(
    listeners: Listeners,
    plane: &Arc<ControlPlane>,
    limits: PortLimits,
    certified: &CertifiedPorts,
    stop: &watch::Sender<bool>,
) -> Vec<JoinHandle<()>> {
    let [node_tls, proxy_tls, operator_tls] = certified.tls.each_ref().map(watch::Sender::subscribe);
    let ((nodes, _), (operators, _)) = (listeners.nodes, listeners.operators);
    let (for_nodes, for_operators, for_proxies) = (plane.clone(), plane.clone(), plane.clone());
    let mut tasks = vec![
        tokio::spawn(accept::serve(nodes, node_tls, limits.nodes, stop.subscribe(), move |request| {
            node_port::handle(for_nodes.clone(), PortListener::Nodes, request)
        })),
        tokio::spawn(accept::serve(
            operators,
            operator_tls,
            limits.operators,
            stop.subscribe(),
            move |request| operator_port::handle(for_operators.clone(), request),
        )),
    ];
    if let Some((proxies, _)) = listeners.proxies {
        tasks.push(tokio::spawn(accept::serve(
            proxies,
            proxy_tls,
            limits.proxies,
            stop.subscribe(),
            move |request| node_port::handle(for_proxies.clone(), PortListener::Proxies, request),
        )));
    }
    if let Some((scrapers, _)) = listeners.scrapers {
        tasks.push(tokio::spawn(listener::serve(scrapers, plane.clone(), stop.subscribe())));
    }
    tasks
}

/// How many connections a listener may have. The limit of open files is raised first.
fn connections(wanted: usize, listeners: usize) -> usize {
    let limit = open_files::raise_limit();
    let connections = open_files::connections_within(wanted, listeners, limit);
    if connections < wanted {
        tracing::warn!(
            wanted,
            connections,
            ?limit,
            "the limit of open files allows fewer connections than wanted; raise LimitNOFILE of the service"
        );
    }
    connections
}

/// Where a client of this machine reaches a listener: its address, or loopback when it
/// listens on all.
fn own_address(listener: SocketAddr) -> String {
    match listener.ip() {
        ip if !ip.is_unspecified() => ip.to_string(),
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.to_string(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.to_string(),
    }
}

/// The names of the control plane's certificate: those of its settings, and those of this machine.
fn own_names(mut names: Vec<String>, operator_host: String) -> Vec<String> {
    names.push(operator_host);
    for own in ["localhost", "127.0.0.1", "::1"] {
        if !names.iter().any(|name| name == own) {
            names.push(own.to_owned());
        }
    }
    names
}

/// Opens the database; the other is done when it is closed.
async fn open_store(config: &Config, founded: &Founded) -> Result<(Arc<Store>, Closed), ServerStartError> {
    let path = config.dir.join(DATABASE);
    // Its journals get the mode of the database itself.
    posture::private(&path)?;
    let failed = |source| ServerStartError::Database { path: path.clone(), source };
    let store = store::Store::open(&path).map_err(failed)?;
    let meta = FleetMeta { fleet: founded.trust.fleet.clone(), created: now() };
    let stored = store.found_fleet(meta.clone()).await.map_err(failed)?;
    if stored.fleet != meta.fleet {
        return Err(ServerStartError::OtherFleet { database: stored.fleet, keys: meta.fleet });
    }
    store.open_epoch(now()).await.map_err(failed)?;
    let fresh = posture::fresh_incarnation()?;
    let incarnation = store.open_incarnation(&fresh, now()).await.map_err(failed)?;
    if let Some(cause) = incarnation.went_back() {
        tracing::warn!(
            ?cause,
            incarnation = %incarnation.id,
            "the data went back to what it was before; nodes compare what they have, and `muster publish` goes on \
             above the releases that they hold"
        );
    }
    let closed = Box::pin(store.closed());
    Ok((Arc::new(store), closed))
}

/// The address prefixes of which nodes authenticated before this start.
async fn known_prefixes(store: &Store) -> Result<PrefixJournal, ServerStartError> {
    let unread = |source| ServerStartError::Database { path: DATABASE.into(), source };
    let (kept, now) = (store.prefixes().await.map_err(unread)?, now());
    let known = kept.into_iter().filter_map(|known| {
        Some((known.prefix.parse::<AddressPrefix>().ok()?, now.since(known.authenticated)))
    });
    Ok(PrefixJournal::restored(known))
}

async fn plane(
    store: Arc<Store>,
    dir: &Path,
    founded: Founded,
    settings: PlaneSettings,
) -> Result<Arc<ControlPlane>, ServerStartError> {
    let boot = data_encoding::HEXLOWER.encode(&posture::random::<4>()?);
    let trust = founded.trust.clone();
    let plane = ControlPlane::new(store, dir, founded, boot, settings);
    plane.hub.signing.follow(posture::control_plane_key(dir, &trust)?, &trust);
    plane.authorities.settle(&plane.trust.documents());
    let unread = |source| ServerStartError::Database { path: DATABASE.into(), source };
    read_nodes(&plane).await.map_err(unread)?;
    plane.hub.fill().await.map_err(unread)?;
    plane.joins.load(&plane.store).await.map_err(unread)?;
    plane.operators.load(&plane.store).await.map_err(unread)?;
    if let Err(problem) = releases::load(&plane).await {
        tracing::error!(%problem, "the signed artifacts cannot be loaded; check-ins are refused");
    }
    let plane = Arc::new(plane);
    // The first status after a start takes no longer than any other.
    refresh(&plane).await;
    // Before anybody may call: a fact of an open task finds it.
    work::restore::open(&plane).await.map_err(unread)?;
    Ok(plane)
}

/// Reads all nodes into the index, some at a time: what is read of them and not kept is soon given back.
async fn read_nodes(plane: &ControlPlane) -> Result<(), StoreError> {
    let (mut after, mut channels) = (None, std::collections::BTreeSet::new());
    loop {
        let page = plane.store.nodes(after.as_ref(), NODES_READ).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.node_id.clone());
        plane.index.fill(page, &mut channels);
    }
    plane.index.leave_out_absence(plane.started);
    Ok(())
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn listen(address: SocketAddr) -> Result<(TcpListener, u16), ServerStartError> {
    let failed = |source| ServerStartError::Listen { address, source };
    let listener = bind(address).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    Ok((listener, port))
}

fn listen_if(address: Option<SocketAddr>) -> Result<Option<(TcpListener, u16)>, ServerStartError> {
    match address {
        Some(address) => Ok(Some(listen(address)?)),
        None => Ok(None),
    }
}

fn url(name: &str, port: u16) -> Option<ServerUrl> {
    let host = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
    format!("https://{host}:{port}").parse().ok()
}

type Tls = Arc<ServerConfig>;

fn own_validity(plane: &ControlPlane) -> CertificateValidity {
    CertificateValidity::starting(now(), plane.certificates.settings.own_validity)
}

/// Makes the control plane's certificate and from it the configurations of the ports: for nodes, for
/// proxies, for operators.
fn server_tls(
    plane: &ControlPlane,
    authorities: &AuthoritySet,
    operators: &OperatorAuthoritySet,
    validity: CertificateValidity,
) -> Result<[Tls; 3], ServerStartError> {
    let serial = posture::random()?;
    let issued = authorities.presenting().issue_server(&plane.names, serial, validity);
    let own =
        issued.map_err(|source| ServerStartError::Certificate { names: plane.names.clone(), source })?;
    let (ca, node_cas) = (authorities.presenting().cert_pem(), authorities.bundle());
    let config = |ca_pem: &str, auth, reject_before| {
        let revoked = plane.lists.revoked.clone();
        let clients = BelievedClients { ca_pem, auth, revoked, reject_before };
        let config = tls::server_believing(&own.cert_pem, &own.key_pem, ca, clients);
        config.map_err(ServerStartError::Tls)
    };
    let from = authorities.reject_before();
    let nodes = tls::with_http1(config(&node_cas, ClientAuth::Optional, from)?.as_ref());
    let proxies = tls::with_http1(config(&node_cas, ClientAuth::Required, from)?.as_ref());
    // Whoever has no certificate needs a token; without either nothing is answered.
    Ok([nodes, proxies, config(&operators.bundle(), ClientAuth::Optional, None)?])
}

/// The control plane's own certificate, as the ports show it, and whom they let in.
struct CertifiedPorts {
    own: OwnCertificate,
    /// For nodes, for proxies, for operators.
    tls: [watch::Sender<Tls>; 3],
}

impl CertifiedPorts {
    fn new(plane: &ControlPlane) -> Result<CertifiedPorts, ServerStartError> {
        let own = own_validity(plane);
        let (authorities, operators) = (plane.authorities.set(), plane.operators.authority.set());
        let tls = server_tls(plane, &authorities, &operators, own)?.map(watch::Sender::new);
        Ok(CertifiedPorts { own: OwnCertificate::made(own), tls })
    }

    /// Makes the certificate anew when it is due while the control plane runs; new connections get it, and those that are
    /// open go on, but for those with certificates that count no more.
    async fn reissue(mut self, plane: Arc<ControlPlane>, mut shutdown: watch::Receiver<bool>) {
        let mut authorities = plane.authorities.changes();
        let mut operators = plane.operators.authority.changes();
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.own.look_within()) => {}
                Ok(()) = authorities.changed() => self.own.authorities_changed(),
                Ok(()) = operators.changed() => self.own.authorities_changed(),
                () = stopped(&mut shutdown) => return,
            }
            if !self.own.is_due(now()) {
                continue;
            }
            let next = own_validity(&plane);
            match self.renew(&plane, next) {
                Ok(()) => {
                    self.own = OwnCertificate::made(next);
                    tracing::info!(until = %next.until, "the control plane's certificate was made anew");
                }
                Err(error) => {
                    tracing::error!(error = %crate::answer::chain(&error), "the certificate could not be renewed");
                }
            }
        }
    }

    /// New connections first: who is cut dials anew.
    fn renew(&self, plane: &ControlPlane, validity: CertificateValidity) -> Result<(), ServerStartError> {
        let (authorities, operators) = (plane.authorities.set(), plane.operators.authority.set());
        let renewed = server_tls(plane, &authorities, &operators, validity)?;
        let nodes = authorities.issuers(plane.index.len()).map_err(ServerStartError::Tls)?;
        let of_operators = operators.issuers().map_err(ServerStartError::Tls)?;
        self.tls.iter().zip(renewed).for_each(|(tls, renewed)| {
            tls.send_replace(renewed);
        });
        plane.lists.revoked.believe(nodes);
        plane.operators.authority.revoked.believe(of_operators);
        Ok(())
    }
}
