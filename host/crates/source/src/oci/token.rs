//! Signing in to a registry, in the way that it asks for.

use ::http::{
    HeaderMap, HeaderValue, Method,
    header::{ACCEPT, CONTENT_TYPE},
};
use bytes::Bytes;
use http_auth::{ChallengeRef, parse_challenges};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::{
    Credentials, Failure,
    docker_config::Login,
    transport::{Call, Transport, authorization, parse_url, shown},
};

/// More than any token takes.
const TOKEN_BYTES_MAX: u64 = 256 * 1024;

/// What a token is to be for.
pub(super) struct Realm {
    /// Repository and actions, as registries write them.
    pub(super) scope: String,
    /// Whether tokens may go over plain HTTP, because everything does.
    pub(super) insecure: bool,
}

#[derive(Deserialize)]
struct Answered {
    token: Option<String>,
    /// The same as OAuth calls it.
    access_token: Option<String>,
}

/// The header that answers the registry's challenges; none if nothing can.
///
/// A token comes from where the registry says: credentials for a registry are as good for a server that it names.
pub(super) async fn authorize(
    transport: &Transport,
    challenges: &[String],
    realm: &Realm,
    login: Option<&Login>,
) -> Result<Option<HeaderValue>, Failure> {
    let challenges = challenges.iter();
    for challenge in challenges.flat_map(|text| parse_challenges(text).unwrap_or_default()) {
        if challenge.scheme.eq_ignore_ascii_case("bearer") {
            return bearer(transport, &challenge, realm, login).await.map(Some);
        }
        if let (true, Some(Login::Password(credentials))) =
            (challenge.scheme.eq_ignore_ascii_case("basic"), login)
        {
            return authorization(credentials).map(Some);
        }
    }
    Ok(None)
}

async fn bearer(
    transport: &Transport,
    challenge: &ChallengeRef<'_>,
    realm: &Realm,
    login: Option<&Login>,
) -> Result<HeaderValue, Failure> {
    if let Some(Login::Registry(token)) = login {
        return authorization(&Credentials::Bearer(token.clone()));
    }
    let url = parse_url(&parameter(challenge, "realm").unwrap_or_default())?;
    if url.scheme() != "https" && !realm.insecure {
        return Err(Failure::UrlRefused {
            url: shown(url.as_str()),
            problem: "the registry wants a password over a connection that anybody can read",
        });
    }
    let service = parameter(challenge, "service");
    let answer = transport.send(ask(url, service, realm, login)?).await?;
    let asked = shown(answer.url().as_str());
    let (text, _) = answer.body_if_ok("the token", TOKEN_BYTES_MAX).await?;
    // What cannot be understood may still be a token, so it is not shown.
    serde_json::from_slice(&text)
        .ok()
        .and_then(
            |Answered {
                 token,
                 access_token,
             }| token.or(access_token),
        )
        .ok_or(Failure::Protocol {
            url: asked,
            problem: "there is no token in its answer",
        })
        .and_then(|token| authorization(&Credentials::Bearer(SecretString::from(token))))
}

/// The request for a token: with a password or nothing as registries have it, with an identity token as OAuth has it.
fn ask(
    mut url: Url,
    service: Option<String>,
    realm: &Realm,
    login: Option<&Login>,
) -> Result<Call, Failure> {
    let accept = (ACCEPT, HeaderValue::from_static("application/json"));
    let mut call = Call {
        method: Method::GET,
        url: url.clone(),
        headers: HeaderMap::from_iter([accept]),
        credentials: None,
        body: Bytes::new(),
    };
    let service = service.iter().map(|service| ("service", service.as_str()));
    let wanted = service.chain([("scope", realm.scope.as_str())]);
    if let Some(Login::Identity(token)) = login {
        // The encoding of a form is that of a query.
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", "innkeeper"),
            ("refresh_token", token.expose_secret()),
        ];
        url.set_query(None);
        url.query_pairs_mut().extend_pairs(wanted.chain(form));
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        call.headers.insert(CONTENT_TYPE, form);
        call.method = Method::POST;
        call.body = Bytes::from(url.query().unwrap_or_default().to_owned());
        return Ok(call);
    }
    if let Some(Login::Password(credentials)) = login {
        call.credentials = Some(authorization(credentials)?);
    }
    call.url.query_pairs_mut().extend_pairs(wanted);
    Ok(call)
}

fn parameter(challenge: &ChallengeRef<'_>, name: &str) -> Option<String> {
    let mut parameters = challenge.params.iter();
    parameters
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.to_unescaped())
}
