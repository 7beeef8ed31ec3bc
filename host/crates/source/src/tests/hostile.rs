//! Parsers for registry responses, for the fuzz targets: each takes only the bytes.

use innkeeper_model::Digest;

use super::{
    manifest::OciManifest,
    token::{self, Realm, SignIn},
};
use crate::{Expectation, Failure, signature, transport::parse_url};

/// Returns the digest and size for the only WebAssembly layer.
pub fn plugin_of_manifest(text: &[u8]) -> Result<(Digest, u64), Failure> {
    let layer = OciManifest::parse(text)?.plugin()?;
    Ok((layer.digest, layer.size))
}

/// Returns the token address that a registry's challenge requests, if it requests a token. Sends no request.
pub fn token_address(challenge: &str, insecure: bool) -> Result<Option<String>, Failure> {
    let repository = parse_url("https://registry.example/v2/plugins/pond/")?;
    let realm = Realm {
        scope: "repository:plugins/pond:pull".to_owned(),
        insecure,
    };
    let challenges = [challenge.to_owned()];
    let sign_in = token::sign_in(&repository, &challenges, &realm, None)?;
    Ok(sign_in.and_then(|way| match way {
        SignIn::Token(call) => Some(call.url.into()),
        SignIn::Header(_) => None,
    }))
}

/// Reads a token server's response.
pub fn token(text: &[u8]) -> Result<(), Failure> {
    let url = parse_url("https://registry.example/token")?;
    token::header(text, &url).map(drop)
}

/// Checks a bundle, and a signed document for other bytes; both refer to the manifest with that digest.
pub fn signatures(
    text: &[u8],
    signature: &str,
    manifest: &Digest,
    expectation: &Expectation,
) -> [Result<Digest, Failure>; 2] {
    [
        signature::check_bundle(text, None, manifest, expectation),
        signature::check_simple(text, signature, manifest, expectation),
    ]
}
