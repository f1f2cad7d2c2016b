//! The application: finds the operation of a request and answers it.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use axum::routing::{MethodFilter, on};
use futures::future::BoxFuture;
use hyper::body::Incoming;
use isobar_hub::Hub;
use isobar_model::time::{Clock, Timestamp};
use metrics_exporter_prometheus::PrometheusHandle;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::admission::{Admission, answer_file, refuse_malformed, refuse_unrouted};
use crate::console;
use crate::meters::RouteMeter;
use crate::problem::Problem;
use crate::request::{self, Client, RequestBody};
use crate::response::{EventResponse, RATE_LIMIT, RATE_REMAINING, RATE_RESET, REQUEST_ID, RequestId, Response};
use crate::routes::{self, RouteAccess, RouteRow, Verb};
use crate::state::{HttpSettings, ServerState};

/// Answers every request. Clones share everything.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    state: Arc<ServerState>,
    door: Door,
    router: Router,
    main_road: Arc<Admission>,
    cors: Option<CorsLayer>,
    /// Counts requests that are refused before routing.
    malformed: Arc<RouteMeter>,
}

/// Set of operations that a listener answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// All operations.
    Every,
    /// All operations but those of monitoring, which have a listener of their own.
    Public,
    /// The operations of monitoring only.
    Operations,
}

impl Door {
    fn has(self, row: &RouteRow) -> bool {
        match self {
            Self::Every => true,
            Self::Public => row.access != RouteAccess::Probe,
            Self::Operations => row.access == RouteAccess::Probe,
        }
    }
}

/// Builds the application that answers requests for a hub, without I/O.
///
/// Creates the handles of all HTTP metrics: install the recorder of `metrics` before, or pass the handle of a recorder
/// that is local.
pub fn app(hub: Hub, settings: HttpSettings, metrics: PrometheusHandle) -> App {
    let door = if settings.has_operations_listener { Door::Public } else { Door::Every };
    App::at(door, &Arc::new(ServerState::new(hub, settings, metrics)))
}

impl App {
    fn at(door: Door, state: &Arc<ServerState>) -> Self {
        let cors = cors(&state.settings.cors_origins).filter(|_| door != Door::Operations);
        let main_road = Arc::new(Admission::new(routes::MAIN_ROAD));
        let router = router(door, state, &main_road);
        let malformed = Arc::new(RouteMeter::new("any", "none"));
        Self(Arc::new(Inner { state: Arc::clone(state), door, router, main_road, cors, malformed }))
    }

    /// Returns an application that answers the operations of monitoring only.
    pub(crate) fn operations(&self) -> Self {
        Self::at(Door::Operations, &self.0.state)
    }

    /// Answers a request.
    pub(crate) fn answer(&self, request: Request<Incoming>, client: Client) -> BoxFuture<'static, Response> {
        let request = request.map(RequestBody::Incoming);
        if let Err(error) = request::host::check(&request) {
            let (state, meter) = (Arc::clone(&self.0.state), Arc::clone(&self.0.malformed));
            return Box::pin(refuse_malformed(state, meter, request, error));
        }
        let Some(cors) = &self.0.cors else { return self.route(request, client) };
        let (app, cors) = (self.clone(), cors.clone());
        Box::pin(async move {
            let inner = service_fn(|request: Request<Body>| {
                let answer = app.route(request.map(RequestBody::Boxed), client.clone());
                async { Ok::<_, Infallible>(answer.await.map(Body::from)) }
            });
            let Ok(response) = cors.layer(inner).oneshot(request.map(Body::from)).await;
            response.map(Into::into)
        })
    }

    /// Answers a request to create a device event.
    pub(crate) fn answer_event(
        &self,
        request: Request<RequestBody>,
        client: Client,
    ) -> impl Future<Output = EventResponse> + Send + use<> {
        self.0.main_road.answer_event(&self.0.state, client, request)
    }

    /// Returns true if event requests may skip the layers that see all other requests.
    pub(crate) fn has_fast_path(&self) -> bool {
        self.0.cors.is_none() && self.has_main_road()
    }

    fn has_main_road(&self) -> bool {
        self.0.door.has(self.0.main_road.row())
    }

    fn route(&self, mut request: Request<RequestBody>, client: Client) -> BoxFuture<'static, Response> {
        let Inner { state, router, main_road, .. } = &*self.0;
        // Most requests are events, even off the fast path. Routing them would add half of the HTTP cost (1.3 µs
        // against 1.9 µs, measured without hub and sockets).
        if self.has_main_road() && main_road.row().is_for(request.method(), request.uri().path()) {
            return Box::pin(main_road.answer(state, client, request));
        }
        request.extensions_mut().insert(client);
        let mut router = router.clone();
        Box::pin(async move {
            let Ok(response) = router.call(request.map(Body::from)).await;
            response.map(Into::into)
        })
    }

    /// Makes an id for a request whose headers cannot be read.
    pub(crate) fn new_request_id(&self) -> RequestId {
        self.0.state.request_ids.of(&HeaderMap::new())
    }

    /// Returns the time of the hub's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// Returns the hub's clock.
    pub(crate) fn clock(&self) -> &Clock {
        self.hub().clock()
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.0.state.hub
    }

    pub(crate) fn settings(&self) -> &HttpSettings {
        &self.0.state.settings
    }

    /// Returns true if a peer is a proxy that the operator trusts.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        request::is_trusted(&self.settings().trusted_proxies, peer)
    }

    /// Returns the address of the client behind a trusted proxy.
    pub(crate) fn client_behind(&self, proxy: IpAddr, headers: &HeaderMap) -> IpAddr {
        request::client_behind(&self.settings().trusted_proxies, proxy, headers)
    }

    /// Folds finished measurements into histograms, to bound their memory.
    pub(crate) fn run_upkeep(&self) {
        self.0.state.metrics.run_upkeep();
    }

    /// Ends streams, which never end by themselves, and long polls.
    pub(crate) fn end_streams(&self) {
        self.hub().end_waits();
        self.0.state.stopping.send_replace(true);
    }
}

/// Builds the router of all operations, with refusals for unknown paths and methods.
fn router(door: Door, state: &Arc<ServerState>, main_road: &Arc<Admission>) -> Router {
    let mut router = Router::new();
    for row in routes::table().into_iter().filter(|row| door.has(row)) {
        let admission = if row.path == main_road.row().path && row.method == main_road.row().method {
            Arc::clone(main_road)
        } else {
            Arc::new(Admission::new(row))
        };
        let state = Arc::clone(state);
        let handler = move |request: Request<Body>| {
            let answer = admission.answer(&state, client(&request), request.map(RequestBody::Boxed));
            async { answer.await.map(Body::from) }
        };
        router = router.route(row.path, on(row.method.filter(), handler));
    }
    let no_such_path = refusal(state, || Problem::NoSuchPath);
    let router = router.method_not_allowed_fallback(refusal(state, || Problem::WrongMethod));
    match door {
        Door::Operations => router.fallback(no_such_path),
        Door::Every | Door::Public => router.fallback(file_or(state, no_such_path)),
    }
}

/// Makes a handler that answers with a file of the console, or calls `otherwise` if there is none.
fn file_or<F>(
    state: &Arc<ServerState>,
    otherwise: F,
) -> impl Fn(Request<Body>) -> BoxFuture<'static, axum::response::Response> + Clone + Send + Sync + 'static
where
    F: Fn(Request<Body>) -> BoxFuture<'static, axum::response::Response> + Clone + Send + Sync + 'static,
{
    let (state, meter) = (Arc::clone(state), Arc::new(RouteMeter::new("GET", "console")));
    move |request| match console::file(state.settings.console, request.method(), request.uri().path()) {
        Some(file) => {
            let response = answer_file(&state, &meter, &request, file);
            Box::pin(async { response.map(Body::from) })
        }
        None => otherwise(request),
    }
}

/// Makes a handler that refuses every request.
fn refusal(
    state: &Arc<ServerState>,
    problem: fn() -> Problem,
) -> impl Fn(Request<Body>) -> BoxFuture<'static, axum::response::Response> + Clone + Send + Sync + 'static {
    let (state, meter) = (Arc::clone(state), Arc::new(RouteMeter::new("any", "none")));
    move |request| {
        let address = client(&request).address;
        let refused = refuse_unrouted(Arc::clone(&state), Arc::clone(&meter), request, address, problem());
        Box::pin(async { refused.await.map(Body::from) })
    }
}

fn client(request: &Request<Body>) -> Client {
    let unknown = Client { address: IpAddr::from([0, 0, 0, 0]), is_behind_proxy: false, socket: None };
    request.extensions().get().cloned().unwrap_or(unknown)
}

impl Verb {
    fn filter(self) -> MethodFilter {
        match self {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
            Verb::Put => MethodFilter::PUT,
            Verb::Patch => MethodFilter::PATCH,
            Verb::Delete => MethodFilter::DELETE,
        }
    }
}

/// Builds the CORS layer for these origins; an origin that is not a valid header value is left out.
fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let named = ["api_auth_token", "cloud", "idempotency-key", "last-event-id"].map(HeaderName::from_static);
    let standard = [AUTHORIZATION, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH, REQUEST_ID];
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(named.into_iter().chain(standard).collect::<Vec<_>>())
        .expose_headers([ETAG, RETRY_AFTER, REQUEST_ID, RATE_LIMIT, RATE_REMAINING, RATE_RESET]);
    if origins.iter().any(|origin| origin == "*") {
        return Some(layer.allow_origin(tower_http::cors::Any));
    }
    let origins = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    Some(layer.allow_origin(AllowOrigin::list(origins)).allow_credentials(true))
}
