//! A plugin on a web server.

use innkeeper_model::Digest;

use super::{
    Failure, Http, Part,
    transport::{Call, Transport, authorization, parse_url},
};

/// Reads a part of the plugin. The signature is at the same address, query included, with `.sig` at the end of the path.
pub(super) async fn read(
    transport: &Transport,
    http: &Http,
    part: Part,
) -> Result<(Vec<u8>, Digest), Failure> {
    let mut url = parse_url(&http.url)?;
    let path = format!("{}{}", url.path(), part.suffix);
    url.set_path(&path);
    let mut call = Call::get(url, "*/*");
    call.credentials = http.credentials.as_ref().map(authorization).transpose()?;
    let answer = transport.send(call).await?;
    answer.body_if_ok(part.what, part.bytes_max).await
}
