//! Signs in to a registry by the method that it requires.

use ::http::{HeaderValue, Method};
use http_auth::{ChallengeRef, parse_challenges};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::{
    Credentials, Failure,
    address::shown,
    docker_config::Login,
    transport::{Call, Transport, authorization, check_private},
};

/// An upper limit for every known token form.
const TOKEN_BYTES_MAX: u64 = 256 * 1024;

/// Maximum number of characters to show from an address that is no URL: enough for a path.
const ADDRESS_CHARS_SHOWN: usize = 100;

/// A token's scope.
pub(super) struct Realm {
    /// Repository and actions, as registries write them.
    pub(super) scope: String,
    /// Allows tokens over plain HTTP, because the user chose it for everything.
    pub(super) insecure: bool,
}

/// The way to sign in.
pub(super) enum SignIn {
    /// With a known header.
    Header(HeaderValue),
    /// With a token, which this request returns.
    Token(Box<Call>),
}

/// Returns the header that answers the registry's challenges; none if there is no answer.
///
/// The token server is named by the registry: credentials for a registry are valid for any server that it names.
pub(super) async fn authorize(
    transport: &Transport,
    repository: &Url,
    challenges: &[String],
    realm: &Realm,
    login: Option<&Login>,
) -> Result<Option<HeaderValue>, Failure> {
    let call = match sign_in(repository, challenges, realm, login)? {
        None => return Ok(None),
        Some(SignIn::Header(header)) => return Ok(Some(header)),
        Some(SignIn::Token(call)) => call,
    };
    let answer = transport.send(*call).await?;
    let url = answer.url().clone();
    let (text, _) = answer.body_if_ok("the token", TOKEN_BYTES_MAX).await?;
    header(&text, &url).map(Some)
}

/// Chooses the way to sign in that the first answerable challenge requires.
pub(super) fn sign_in(
    repository: &Url,
    challenges: &[String],
    realm: &Realm,
    login: Option<&Login>,
) -> Result<Option<SignIn>, Failure> {
    if login.is_some() {
        check_private(repository)?;
    }
    for challenge in challenges
        .iter()
        // A header that cannot be parsed does not hide another one.
        .flat_map(|text| parse_challenges(text).unwrap_or_default())
    {
        if challenge.scheme.eq_ignore_ascii_case("bearer") {
            return bearer(repository, &challenge, realm, login).map(Some);
        }
        if let (true, Some(Login::Password(credentials))) =
            (challenge.scheme.eq_ignore_ascii_case("basic"), login)
        {
            return authorization(credentials).map(SignIn::Header).map(Some);
        }
    }
    Ok(None)
}

fn bearer(
    repository: &Url,
    challenge: &ChallengeRef<'_>,
    realm: &Realm,
    login: Option<&Login>,
) -> Result<SignIn, Failure> {
    if let Some(Login::Registry(token)) = login {
        return authorization(&Credentials::Bearer(token.clone())).map(SignIn::Header);
    }
    let address = parameter(challenge, "realm").unwrap_or_default();
    let url = Url::parse(&address).map_err(|_| {
        let problem = match &*address {
            "" => "it asks for a token and names no token server".to_owned(),
            address => {
                let start: String = address.chars().take(ADDRESS_CHARS_SHOWN).collect();
                format!("it names the token server \"{start}\", and a whole URL is needed")
            }
        };
        Failure::protocol(repository, &problem)
    })?;
    if url.scheme() != "https" && !realm.insecure {
        return Err(Failure::url_refused(
            &shown(url.as_str()),
            "the registry wants a password over a connection without encryption",
        ));
    }
    // Also with `insecure`: a password goes over plain HTTP to loopback only.
    if login.is_some() {
        check_private(&url)?;
    }
    let service = parameter(challenge, "service");
    let call = token_request(url, service, realm, login)?;
    Ok(SignIn::Token(Box::new(call)))
}

/// Returns the header with the token from a token server's response.
pub(super) fn header(text: &[u8], url: &Url) -> Result<HeaderValue, Failure> {
    // A malformed response may still contain a token, so it is not shown.
    let answer: Value = serde_json::from_slice(text).unwrap_or_default();
    // OAuth has the second name, and servers send one of them or both.
    let token = ["token", "access_token"]
        .into_iter()
        .find_map(|name| answer[name].as_str())
        .ok_or_else(|| Failure::protocol(url, "there is no token in its answer"))?;
    authorization(&Credentials::Bearer(SecretString::from(token)))
}

/// Builds the request for a token: the registry protocol for a password or none, OAuth for an identity token.
fn token_request(
    mut url: Url,
    service: Option<String>,
    realm: &Realm,
    login: Option<&Login>,
) -> Result<Call, Failure> {
    let scoped = service
        .iter()
        .map(|service| ("service", service.as_str()))
        .chain([("scope", realm.scope.as_str())]);
    if let Some(Login::Identity(token)) = login {
        // A form has the same encoding as a query.
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", "innkeeper"),
            ("refresh_token", token.expose_secret()),
        ];
        let target = url.clone();
        url.set_query(None);
        url.query_pairs_mut().extend_pairs(scoped.chain(form));
        let form = url.query().unwrap_or_default().to_owned();
        return Ok(Call::new(Method::POST, target).body("application/x-www-form-urlencoded", form));
    }
    url.query_pairs_mut().extend_pairs(scoped);
    let mut call = Call::get(url, "application/json");
    if let Some(Login::Password(credentials)) = login {
        call.credentials = Some(authorization(credentials)?);
    }
    Ok(call)
}

fn parameter(challenge: &ChallengeRef<'_>, name: &str) -> Option<String> {
    let mut parameters = challenge.params.iter();
    parameters
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.to_unescaped())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_server_without_a_whole_url_is_a_fault_of_the_registry() {
        let repository = Url::parse("https://registry.example/v2/plugins/pond/").unwrap();
        let realm = Realm {
            scope: "repository:plugins/pond:pull".to_owned(),
            insecure: false,
        };
        let problem = |challenge: &str| {
            let challenges = [challenge.to_owned()];
            let failed = sign_in(&repository, &challenges, &realm, None)
                .err()
                .unwrap();
            failed.to_string()
        };
        let registry = "https://registry.example/v2/plugins/pond/ does not answer as registries do";
        for (challenge, expected) in [
            (
                r#"Bearer realm="/token",service="registry""#,
                r#"it names the token server "/token", and a whole URL is needed"#,
            ),
            (
                r#"Bearer realm="auth.example/token""#,
                r#"it names the token server "auth.example/token", and a whole URL is needed"#,
            ),
            (
                r#"Bearer service="registry""#,
                "it asks for a token and names no token server",
            ),
        ] {
            assert_eq!(problem(challenge), format!("{registry}: {expected}"));
        }
    }
}
