//! A plugin on a web server.

use ::http::{HeaderMap, HeaderValue, Method, StatusCode, header::ACCEPT};
use bytes::Bytes;
use reqwest::Url;

use super::{
    Expectation, Failure, Fetched, Http, accept, signature,
    transport::{Call, Transport, authorization, parse_url},
};

pub(super) async fn fetch(
    transport: &Transport,
    http: &Http,
    expectation: &Expectation,
    bytes_max: u64,
) -> Result<Fetched, Failure> {
    let url = parse_url(&http.url)?;
    let credentials = http.credentials.as_ref().map(authorization).transpose()?;
    let call = |url: Url| Call {
        method: Method::GET,
        url,
        headers: HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("*/*"))]),
        credentials: credentials.clone(),
        body: Bytes::new(),
    };
    let answer = transport.send(call(url.clone())).await?;
    let (bytes, digest) = answer.body_if_ok("the plugin", bytes_max).await?;
    super::check_digest(&digest, expectation)?;
    let signature = if expectation.keys.is_empty() {
        None
    } else {
        let url = signature_url(url);
        let answer = transport.send(call(url.clone())).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Err(Failure::Unsigned {
                looked_for: super::transport::shown(url.as_str()),
            });
        }
        let (text, _) = answer
            .body_if_ok("the signature", signature::FILE_BYTES_MAX)
            .await?;
        Some(text)
    };
    accept(bytes, digest, expectation, signature.as_deref())
}

/// Returns the address with `.sig` at the end of its path and with the same query.
fn signature_url(mut url: Url) -> Url {
    let path = format!("{}.sig", url.path());
    url.set_path(&path);
    url
}
