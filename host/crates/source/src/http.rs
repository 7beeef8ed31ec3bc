//! A plugin on a web server.

use innkeeper_model::Digest;
use reqwest::Url;

use super::{
    Failure, Http, Part,
    transport::{Call, Transport, authorization, check_private, parse_url},
};

impl Http {
    /// Returns true if a comma-separated list of hosts has the server.
    ///
    /// A host is written with its port, except for the scheme's default port.
    pub fn is_at_one_of(&self, hosts: &str) -> bool {
        let Ok(url) = Url::parse(&self.url) else {
            return false;
        };
        hosts.split(',').any(|host| {
            // Parsed, so that default ports and capital letters make no difference.
            Url::parse(&format!("{}://{}", url.scheme(), host.trim()))
                .is_ok_and(|named| named.origin() == url.origin())
        })
    }
}

/// Reads a plugin part. The signature is at the same address, query included, with `.sig` appended to the path.
pub(super) async fn read(
    transport: &Transport,
    http: &Http,
    part: Part,
) -> Result<(Vec<u8>, Digest), Failure> {
    let mut url = parse_url(&http.url)?;
    let path = format!("{}{}", url.path(), part.suffix);
    url.set_path(&path);
    let mut call = Call::get(url, "*/*");
    if let Some(credentials) = &http.credentials {
        check_private(&call.url)?;
        call.credentials = Some(authorization(credentials)?);
    }
    transport
        .send(call)
        .await?
        .body_if_ok(part.what, part.bytes_max)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_for_the_hosts_that_their_secret_names() {
        let is_at = |url: &str, hosts: &str| {
            let http = Http {
                url: url.to_owned(),
                credentials: None,
            };
            http.is_at_one_of(hosts)
        };
        for (url, hosts) in [
            ("https://a.test/x.wasm", "a.test"),
            ("https://a.test:443/x.wasm", "b.test, A.TEST"),
            ("https://a.test/x.wasm", "a.test:443"),
            ("https://a.test:8443/x.wasm", "a.test:8443"),
            ("http://127.0.0.1:8080/x.wasm", "127.0.0.1:8080"),
        ] {
            assert!(is_at(url, hosts), "{url} {hosts}");
        }
        for (url, hosts) in [
            ("https://a.test/x.wasm", ""),
            ("https://a.test/x.wasm", "b.test"),
            ("https://a.test/x.wasm", "*"),
            ("https://a.test/x.wasm", "test"),
            ("https://a.test.evil.test/x.wasm", "a.test"),
            ("https://a.test:8443/x.wasm", "a.test"),
            ("https://evil.test/?a.test", "a.test"),
            ("no address", "a.test"),
        ] {
            assert!(!is_at(url, hosts), "{url} {hosts}");
        }
    }
}
