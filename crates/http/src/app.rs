//! The room as a whole: from a request to its answer.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use axum::routing::{MethodFilter, on};
use futures::future::BoxFuture;
use hyper::body::Incoming;
use isobar_hub::Hub;
use isobar_model::time::Timestamp;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::completed::Completed;
use crate::forwarded::{self, Network};
use crate::frames::Inbound;
use crate::gate::{
    Gate, Passing, RATE_LIMIT, RATE_REMAINING, RATE_RESET, REQUEST_ID, Refusal, RequestIds, refuse, turn_away,
};
use crate::host;
use crate::line::Line;
use crate::meters::{Meters, RouteMeter};
use crate::pace;
use crate::problem::Problem;
use crate::reply::Response;
use crate::routes::{self, Verb};
use crate::shares::Shares;

/// What the operator set for HTTP.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Most bytes of a body.
    pub max_body_bytes: usize,
    /// Origins whose pages may call the API; none: CORS is off. `*` stands for any, without cookies.
    pub cors_origins: Vec<String>,
    /// Most connections at a time.
    pub max_connections: usize,
    /// Proxies whose word is believed about whom they were asked by.
    pub trusted_proxies: Vec<Network>,
    /// How long every body has to come, and every answer to be taken. Operators do not set it; tests do not wait so long.
    pub patience: Duration,
    /// Most bytes of bodies that are under way. Operators do not set it either.
    pub receiving_bytes_max: usize,
    /// Most bytes of stored payloads that are on their way to readers.
    pub answering_bytes_max: usize,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            max_body_bytes: 1 << 20,
            cors_origins: Vec::new(),
            max_connections: 20_000,
            trusted_proxies: Vec::new(),
            patience: pace::TIME,
            receiving_bytes_max: RECEIVING_BYTES_MAX,
            answering_bytes_max: ANSWERING_BYTES_MAX,
        }
    }
}

/// Most bytes of bodies that are under way: several of the largest that a setting allows.
const RECEIVING_BYTES_MAX: usize = 256 << 20;
/// Most bytes of stored payloads that are on their way to readers, who may read slowly.
const ANSWERING_BYTES_MAX: usize = 512 << 20;

/// What every call shares.
pub(crate) struct Shared {
    pub hub: Hub,
    pub settings: HttpSettings,
    pub metrics: PrometheusHandle,
    pub meters: Meters,
    pub request_ids: RequestIds,
    /// Bytes of bodies that are under way.
    pub receiving: Arc<Shares>,
    /// Bytes of stored payloads that are on their way out, of pages that take long to read.
    pub answering: Arc<Shares>,
    /// Places of long polls and streams: as many as there may be connections.
    pub waiting: Arc<Shares>,
    /// Becomes true when the server stops: streams without an end then end.
    pub stopping: watch::Sender<bool>,
}

/// The service that answers every request. Clones share everything.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    router: Router,
    main_road: Arc<Gate>,
    cors: Option<CorsLayer>,
    /// Of what was turned away before anybody looked at its path.
    unheard: Arc<RouteMeter>,
}

/// Where a request comes from.
#[derive(Clone)]
pub(crate) struct Client {
    pub address: IpAddr,
    /// What is known of the client while its answer is made; none in the lane, whose answers nobody gives up.
    pub line: Option<Line>,
}

impl Client {
    /// A client in the lane.
    pub fn of_lane(address: IpAddr) -> Self {
        Self { address, line: None }
    }
}

/// An answer in the making. It is small, for a connection keeps and moves it.
pub struct Answering(Making);

enum Making {
    /// It ends when nobody waits for it.
    Read(Passing),
    /// It goes on to its end.
    Change(Completed<Passing>),
    /// It is found by the router, or goes through layers.
    Routed(BoxFuture<'static, Response>),
}

impl Answering {
    /// The same, for what may be left when nobody waits for it.
    pub(crate) fn read(passing: Passing) -> Self {
        Self(Making::Read(passing))
    }

    /// The same, for what must not.
    pub(crate) fn change(passing: Passing) -> Self {
        Self(Making::Change(Completed::new(passing)))
    }

    fn routed(answering: impl Future<Output = Response> + Send + 'static) -> Self {
        Self(Making::Routed(Box::pin(answering)))
    }
}

impl Future for Answering {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        match &mut self.0 {
            Making::Read(passing) => Pin::new(passing).poll(cx),
            Making::Change(passing) => Pin::new(passing).poll(cx),
            Making::Routed(answering) => answering.as_mut().poll(cx),
        }
    }
}

/// Makes the service. The metrics recorder must be installed before, for here the handles are made.
pub fn app(hub: Hub, settings: HttpSettings, metrics: PrometheusHandle) -> App {
    let cors = cors(&settings.cors_origins);
    let request_ids = RequestIds::new(hub.clock().now());
    let stopping = watch::Sender::new(false);
    let (receiving, waiting) = (Shares::new(settings.receiving_bytes_max), Shares::new(settings.max_connections));
    let meters = Meters::new();
    let answering = Shares::new(settings.answering_bytes_max);
    let shared =
        Arc::new(Shared { hub, settings, metrics, meters, request_ids, receiving, answering, waiting, stopping });
    let main_road = Arc::new(Gate::new(routes::MAIN_ROAD));
    let router = router(&shared, &main_road);
    let unheard = Arc::new(RouteMeter::new("any", "none"));
    App(Arc::new(Inner { shared, router, main_road, cors, unheard }))
}

impl App {
    /// Answers a request.
    pub(crate) fn answer(&self, request: Request<Incoming>, client: Client) -> Answering {
        let request = request.map(Inbound::Incoming);
        if let Err(fault) = host::check(&request) {
            let (shared, meter) = (Arc::clone(&self.0.shared), Arc::clone(&self.0.unheard));
            return Answering::routed(turn_away(shared, meter, request, fault));
        }
        let Some(cors) = &self.0.cors else { return self.route(request, client) };
        let (app, cors) = (self.clone(), cors.clone());
        Answering::routed(async move {
            let inner = service_fn(|request: Request<Body>| {
                let answering = app.route(request.map(Inbound::Boxed), client.clone());
                async { Ok::<_, Infallible>(answering.await.map(Body::from)) }
            });
            let Ok(response) = cors.layer(inner).oneshot(request.map(Body::from)).await;
            response.map(Into::into)
        })
    }

    /// Answers a request of the main road.
    pub(crate) fn answer_event(&self, request: Request<Inbound>, client: Client) -> Answering {
        self.0.main_road.pass(&self.0.shared, client, request)
    }

    /// Whether requests of the main road have nothing before them that looks at all requests.
    pub(crate) fn has_lane(&self) -> bool {
        self.0.cors.is_none()
    }

    /// The moment, by the hub's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.0.shared.hub.clock().now()
    }

    fn route(&self, mut request: Request<Inbound>, client: Client) -> Answering {
        let Inner { shared, router, main_road, .. } = &*self.0;
        // Most requests are this one, also of those that have left their lane. The router would add half of what the
        // whole room costs here (1.3 µs against 1.9 µs, measured without hub and sockets).
        if main_road.row().is_for(request.method(), request.uri().path()) {
            return main_road.pass(shared, client, request);
        }
        request.extensions_mut().insert(client);
        let mut router = router.clone();
        Answering::routed(async move {
            let Ok(response) = router.call(request.map(Body::from)).await;
            response.map(Into::into)
        })
    }

    /// What the operator set.
    pub(crate) fn settings(&self) -> &HttpSettings {
        &self.0.shared.settings
    }

    /// How long every answer has to be taken.
    pub(crate) fn patience(&self) -> Duration {
        self.0.shared.settings.patience
    }

    /// Whether a peer is a proxy whose word is believed.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        forwarded::is_trusted(&self.settings().trusted_proxies, peer)
    }

    /// Who calls through such a proxy.
    pub(crate) fn client_behind(&self, proxy: IpAddr, headers: &HeaderMap) -> IpAddr {
        forwarded::client(&self.settings().trusted_proxies, proxy, headers)
    }

    /// The hub that it serves.
    pub(crate) fn hub(&self) -> &Hub {
        &self.0.shared.hub
    }

    /// Folds what was measured together, so that it takes bounded memory.
    pub(crate) fn upkeep(&self) {
        self.0.shared.metrics.run_upkeep();
    }

    /// Ends the answers that have no end of their own, and those that wait for something to tell.
    pub(crate) fn end_streams(&self) {
        self.0.shared.hub.end_waits();
        self.0.shared.stopping.send_replace(true);
    }
}

/// The router of the table, and the refusals for what is not in it.
fn router(shared: &Arc<Shared>, main_road: &Arc<Gate>) -> Router {
    let mut router = Router::new();
    for row in routes::table() {
        let gate = if row.path == main_road.row().path && row.method == main_road.row().method {
            Arc::clone(main_road)
        } else {
            Arc::new(Gate::new(row))
        };
        let shared = Arc::clone(shared);
        let handler = move |request: Request<Body>| {
            let (gate, shared) = (Arc::clone(&gate), Arc::clone(&shared));
            let client = client(&request);
            let answering = gate.pass(&shared, client, request.map(Inbound::Boxed));
            async { answering.await.map(Body::from) }
        };
        router = router.route(row.path, on(row.method.filter(), handler));
    }
    let no_such_path = refusal(shared, || Problem::NoSuchPath);
    let wrong_method = refusal(shared, || Problem::WrongMethod);
    router.fallback(no_such_path).method_not_allowed_fallback(wrong_method)
}

/// A handler that refuses whatever comes.
fn refusal(
    shared: &Arc<Shared>,
    problem: fn() -> Problem,
) -> impl Fn(Request<Body>) -> BoxFuture<'static, axum::response::Response> + Clone + Send + Sync + 'static {
    let (shared, meter) = (Arc::clone(shared), Arc::new(RouteMeter::new("any", "none")));
    move |request| {
        let refusal = Refusal { problem, peer: client(&request).address };
        let refused = refuse(Arc::clone(&shared), Arc::clone(&meter), request, refusal);
        Box::pin(async { refused.await.map(Body::from) })
    }
}

fn client(request: &Request<Body>) -> Client {
    request.extensions().get().cloned().unwrap_or(Client::of_lane(IpAddr::from([0, 0, 0, 0])))
}

impl Verb {
    fn filter(self) -> MethodFilter {
        match self {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
            Verb::Put => MethodFilter::PUT,
            Verb::Delete => MethodFilter::DELETE,
        }
    }
}

/// CORS for these origins; an origin that is no header value is left out.
fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let named = ["api_auth_token", "cloud", "idempotency-key", "last-event-id"].map(HeaderName::from_static);
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers(named.into_iter().chain([AUTHORIZATION, CONTENT_TYPE, REQUEST_ID]).collect::<Vec<_>>())
        .expose_headers([RETRY_AFTER, REQUEST_ID, RATE_LIMIT, RATE_REMAINING, RATE_RESET]);
    if origins.iter().any(|origin| origin == "*") {
        return Some(layer.allow_origin(tower_http::cors::Any));
    }
    let origins = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    Some(layer.allow_origin(AllowOrigin::list(origins)).allow_credentials(true))
}
