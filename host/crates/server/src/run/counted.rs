//! A client that counts every request to the API server.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, FutureExt as _};
use http::{Method, Request, Response, StatusCode};
use innkeeper_metrics::Metrics;
use tower::Service;

/// A client whose requests are counted.
pub(super) struct CountedClient<S> {
    pub(super) inner: S,
    pub(super) metrics: Arc<Metrics>,
}

/// A request in flight; counted on drop, so that a cancelled request counts as well.
struct Sent {
    metrics: Arc<Metrics>,
    method: Method,
    status: Option<StatusCode>,
}

impl<S, A, B> Service<Request<A>> for CountedClient<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let sent = Sent {
            metrics: Arc::clone(&self.metrics),
            method: request.method().clone(),
            status: None,
        };
        let answer = self.inner.call(request);
        async move {
            // The future takes the whole guard: of a field alone it would take a copy.
            let mut sent = sent;
            let answer = answer.await;
            sent.status = answer.as_ref().ok().map(Response::status);
            answer
        }
        .boxed()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // The label value that client-go uses for a request without a response.
        let code = self.status.as_ref().map_or("<error>", StatusCode::as_str);
        self.metrics.request(self.method.as_str(), code);
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending};

    use super::*;

    /// Answers every request with 409, and `TRACE` never.
    struct Server;

    impl Service<Request<()>> for Server {
        type Response = Response<()>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Response<()>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            if request.method() == Method::TRACE {
                return pending().boxed();
            }
            let mut answer = Response::new(());
            *answer.status_mut() = StatusCode::CONFLICT;
            async { Ok(answer) }.boxed()
        }
    }

    #[tokio::test]
    async fn every_request_is_counted_also_one_that_was_given_up() {
        let metrics = Arc::new(Metrics::new());
        let mut client = CountedClient {
            inner: Server,
            metrics: Arc::clone(&metrics),
        };
        let request = |method| Request::builder().method(method).body(()).unwrap();
        for _ in 0..2 {
            let answer = client.call(request(Method::PATCH)).await.unwrap();
            assert_eq!(answer.status(), StatusCode::CONFLICT);
        }
        drop(client.call(request(Method::TRACE)));
        let text = metrics.encode().unwrap();
        for line in [
            "rest_client_requests_total{code=\"409\",method=\"PATCH\"} 2",
            "rest_client_requests_total{code=\"<error>\",method=\"TRACE\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
