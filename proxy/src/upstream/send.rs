//! One request on its way: a connection for it, the wait for its answer, and what may be tried again.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body, Incoming};
use policy::{Permit, Route};

use super::alpn::{Place, Turn};
use super::connection::{Connection, Sender};
use super::interim::Interim;
use super::pool::Key;
use super::verify::Offer;
use super::{Answer, Lease, Upstream, UpstreamError, Use, Wish, framing};
use crate::exchange::body::{Meter, RequestBody};

type NotSent = hyper::client::conn::TrySendError<Request<RequestBody>>;

/// How long a body waits for the upstream to ask for it.
const ASKED_FOR: Duration = Duration::from_secs(1);
/// How often a request may begin anew.
const MOST_TRIES: usize = 3;

impl Upstream {
    /// Sends one request, on a kept connection or a new one, and waits for the head of its answer.
    /// The permit is consumed: what it allowed has then happened. A connection that turns out to be
    /// closed is replaced, but only for a request of which nothing was sent, or one without a body
    /// that may be repeated, or one without a body of which the upstream says that it has done
    /// nothing. What comes before the answer is heard by `interim`.
    pub async fn send(
        &self,
        route: &Route,
        permit: Permit,
        owner: &Arc<str>,
        wish: Wish,
        mut request: Request<RequestBody>,
        interim: &Arc<Interim>,
    ) -> Result<Answer, UpstreamError> {
        if permit.authority() != route.authority()
            || permit.scheme() != route.scheme()
            || permit.injects_run_token() != route.board()
        {
            return Err(UpstreamError::WrongPermit);
        }
        let key = self.pool.key(owner, permit.credential(), route);
        let sent = Arc::clone(request.body().meter());
        let mut kept = self.pool.take(&key, self.offer(route, wish));
        for tries in 1.. {
            let (mut connection, reused) = match kept.take() {
                Some(connection) => (connection, true),
                None => {
                    let opening = Box::pin(self.fresh(route, &key, wish));
                    (self.in_time(opening).await?, false)
                }
            };
            if reused && !is_ready(&mut connection).await {
                continue;
            }
            let again = Again::of(&request, &connection, reused);
            suit(&mut request, &connection, route)?;
            match self
                .exchange(&mut connection, request, &sent, interim)
                .await
            {
                Ok(response)
                    if response.status() == StatusCode::SWITCHING_PROTOCOLS
                        && wish != Wish::OnlyHttp1 =>
                {
                    return Err(UpstreamError::UnsolicitedUpgrade);
                }
                Ok(mut response) => {
                    let plain = connection.is_http2() || framing::settle(&mut response)?;
                    let lease = self.lease(connection, key, sent, plain);
                    return Ok(Answer { response, lease });
                }
                Err(Failed { unsent, error }) => {
                    let next = match unsent {
                        Some(unsent) if reused => Some(*unsent),
                        Some(_) | None => again.after(&error),
                    };
                    match next.filter(|_| tries < MOST_TRIES) {
                        Some(next) => request = next,
                        None => return Err(error),
                    }
                }
            }
        }
        Err(UpstreamError::Timeout)
    }

    /// A new connection. One of HTTP/2 is there for others as well.
    async fn fresh(
        &self,
        route: &Route,
        key: &Key,
        wish: Wish,
    ) -> Result<Connection, UpstreamError> {
        // Requests that come at once wait for one connection that all of them can use.
        let turn = match self.offer(route, wish) {
            Offer::Http1 => None,
            Offer::Both => {
                let turn = self.known.turn(key.owner(), &Place::of(route)).await?;
                if let Some(shared) = self.pool.take(key, Offer::Both) {
                    return Ok(shared);
                }
                // It may have turned out that there is nothing to share.
                Some(turn).filter(|_| self.offer(route, wish) == Offer::Both)
            }
        };
        // The turn is held until the connection can be shared.
        let connection = match self.open(route, key, wish).await {
            Ok(connection) => connection,
            Err(error) => return Err(failed(turn, error)),
        };
        match connection.share() {
            Some(shared) => {
                self.pool.put(key.clone(), connection);
                Ok(shared)
            }
            None => Ok(connection),
        }
    }

    /// The connection of an answer, to be kept behind it if the answer's end was `plain`.
    fn lease(&self, connection: Connection, key: Key, sent: Arc<Meter>, plain: bool) -> Lease {
        let address = connection.address;
        let use_of = if connection.is_http2() {
            Use::Stream {
                _place: connection.stream,
            }
        } else {
            Use::Whole {
                connection: Box::new(connection),
                key: Box::new(key),
                pool: Arc::clone(&self.pool),
                sent,
                plain,
            }
        };
        Lease { use_of, address }
    }

    async fn exchange(
        &self,
        connection: &mut Connection,
        mut request: Request<RequestBody>,
        sent: &Arc<Meter>,
        interim: &Arc<Interim>,
    ) -> Result<Response<Incoming>, Failed> {
        match &mut connection.sender {
            Sender::Http1(sender) => {
                interim.watch(&mut request, sent);
                let answer = pin!(sender.try_send_request(request));
                self.answer(answer, interim, sent).await
            }
            Sender::Http2(sender, _) => {
                // The upstream cannot be heard asking for it, so that it is not waited for.
                sent.release();
                let answer = pin!(sender.try_send_request(request));
                self.answer(answer, interim, sent).await
            }
        }
    }

    async fn answer(
        &self,
        mut answer: Pin<&mut impl Future<Output = Result<Response<Incoming>, NotSent>>>,
        interim: &Interim,
        sent: &Meter,
    ) -> Result<Response<Incoming>, Failed> {
        let mut progress = sent.sent();
        loop {
            let patience = if sent.is_held() {
                ASKED_FOR
            } else {
                self.settings.response_timeout
            };
            tokio::select! {
                biased;
                done = answer.as_mut() => {
                    if interim.is_flooded() {
                        return Err(UpstreamError::InterimFlood.into());
                    }
                    return done.map_err(|mut failed| Failed {
                        unsent: failed.take_message().map(Box::new),
                        error: UpstreamError::Http(failed.into_error()),
                    });
                }
                () = interim.flooded() => return Err(UpstreamError::InterimFlood.into()),
                () = tokio::time::sleep(patience) => {
                    if sent.is_held() {
                        sent.release();
                        continue;
                    }
                    if sent.sent() == progress {
                        let clients = sent.is_starved() && !sent.is_complete();
                        let error = if clients {
                            UpstreamError::ClientStalled
                        } else {
                            UpstreamError::Timeout
                        };
                        return Err(error.into());
                    }
                    progress = sent.sent();
                }
            }
        }
    }
}

fn failed(turn: Option<Turn>, error: UpstreamError) -> UpstreamError {
    match turn {
        Some(turn) => turn.failed(error),
        None => error,
    }
}

/// A request that did not succeed, and itself if nothing of it was sent.
struct Failed {
    unsent: Option<Box<Request<RequestBody>>>,
    error: UpstreamError,
}

impl From<UpstreamError> for Failed {
    fn from(error: UpstreamError) -> Self {
        Self {
            unsent: None,
            error,
        }
    }
}

/// A copy of a request without a body, and when it may be sent a second time.
struct Again {
    copy: Option<Request<RequestBody>>,
    harmless: bool,
    reused: bool,
    http2: bool,
}

impl Again {
    fn of(request: &Request<RequestBody>, connection: &Connection, reused: bool) -> Self {
        let harmless = matches!(
            *request.method(),
            Method::GET | Method::HEAD | Method::OPTIONS
        );
        let http2 = connection.is_http2();
        let copied = request.body().is_end_stream() && (http2 || (reused && harmless));
        Self {
            copy: copied.then(|| copy(request)),
            harmless,
            reused,
            http2,
        }
    }

    /// The copy, if the request may be sent again after `error`: nothing was done with it, or
    /// doing it twice is harmless and the connection may just have been old.
    fn after(self, error: &UpstreamError) -> Option<Request<RequestBody>> {
        let untouched = self.http2 && error.is_refused_stream();
        let stale = self.harmless && (self.reused || (self.http2 && error.is_going_away()));
        let broken = matches!(error, UpstreamError::Http(_));
        self.copy.filter(|_| broken && (untouched || stale))
    }
}

fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::empty(request.body().meter()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

async fn is_ready(connection: &mut Connection) -> bool {
    match &mut connection.sender {
        Sender::Http1(sender) => sender.ready().await.is_ok(),
        Sender::Http2(sender, _) => sender.ready().await.is_ok(),
    }
}

/// Puts the request into the form of the connection's protocol. The authority is the route's in
/// either.
fn suit(
    request: &mut Request<RequestBody>,
    connection: &Connection,
    route: &Route,
) -> Result<(), UpstreamError> {
    let http2 = connection.is_http2();
    if !http2 && request.uri().authority().is_none() {
        return Ok(());
    }
    let authority = route.authority().host_header(route.scheme());
    let mut uri = http::uri::Parts::default();
    uri.path_and_query = request.uri().path_and_query().cloned();
    if http2 {
        uri.scheme = route.scheme().as_str().parse().ok();
        uri.authority = authority.parse().ok();
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().remove(header::HOST);
        request.headers_mut().remove(header::CONNECTION);
    } else {
        *request.version_mut() = Version::HTTP_11;
        let host = HeaderValue::from_str(&authority).map_err(|_| UpstreamError::ServerName)?;
        request.headers_mut().insert(header::HOST, host);
    }
    *request.uri_mut() = Uri::from_parts(uri).map_err(|_| UpstreamError::ServerName)?;
    Ok(())
}
