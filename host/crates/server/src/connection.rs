//! Connects to the API server: kubeconfig as in `kubectl`, changing credentials, and proxies.

mod credentials;
mod exec;
mod kubeconfig;
mod proxy;

use std::sync::Arc;

use http::{Request, Response, Uri};
use hyper::{
    body::Incoming,
    rt::{Read, Write},
};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connection, HttpConnector},
    },
    rt::TokioExecutor,
};
use innkeeper_command::{Exit, Failure, OrFail as _};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, util::BoxService};

use self::{
    credentials::{Authorized, ChangingToken},
    proxy::Proxy,
};
pub use kubeconfig::client_config;

const FAILED: &str = "failed to create a client for the API server";

/// Configuration for clients of one API server.
pub struct ClientConfig {
    /// Address, certificates, static credentials and timeouts.
    pub config: kube::Config,
    /// A token that changes.
    credentials: Option<Arc<ChangingToken>>,
    /// The kubeconfig's proxy; the environment's proxies apply only to sources.
    proxy: Option<Proxy>,
}

/// The service behind a client.
pub type ApiService = Authorized<BoxService<Request<Body>, Response<Incoming>, BoxError>>;

impl ClientConfig {
    /// Returns a builder for a client with separate connections.
    pub fn builder(&self) -> Result<ClientBuilder<ApiService>, Failure> {
        let service = self.service().or_fail(Exit::Failure, FAILED)?;
        let authorized = Authorized::new(service, self.credentials.clone());
        let namespace = &*self.config.default_namespace;
        Ok(ClientBuilder::new(authorized, namespace))
    }

    fn service(&self) -> kube::Result<BoxService<Request<Body>, Response<Incoming>, BoxError>> {
        let config = &self.config;
        let mut direct = HttpConnector::new();
        // The addresses are mostly https://; the layer above adds TLS.
        direct.enforce_http(false);
        match &self.proxy {
            None => service(config, direct),
            Some(Proxy::Socks(proxy)) => service(config, proxy.connector(direct)),
            Some(Proxy::Http(proxy)) => service(config, proxy.connector(direct)),
            Some(Proxy::Https(proxy)) => {
                // This TLS ends at the proxy; `service` adds another one to the API server within it.
                let secure = config.rustls_https_connector_with_connector(direct)?;
                service(config, proxy.connector(secure))
            }
        }
    }
}

/// Returns a service over these connections.
fn service<C>(
    config: &kube::Config,
    connector: C,
) -> kube::Result<BoxService<Request<Body>, Response<Incoming>, BoxError>>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: std::error::Error + Send + Sync + 'static,
{
    let secure = config.rustls_https_connector_with_connector(connector)?;
    let mut connector = TimeoutConnector::new(secure);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client = Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    // Without kube's retries, which repeat even a POST: the reconcile loop must know about every write.
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        // Static credentials only; `Authorized` adds the token that changes.
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(service.boxed())
}
