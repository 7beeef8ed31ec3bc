//! Keys that sign plugins: ECDSA on P-256 with SHA-256, as cosign makes them, and Ed25519.

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::Digest;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use rustls::{
    SignatureScheme,
    crypto::ring::sign::any_supported_type,
    pki_types::{
        AlgorithmIdentifier, PrivateKeyDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, alg_id,
        pem::PemObject,
    },
    sign::public_key_to_spki,
};

use super::{Failure, FailureKind};

/// Supported key kinds: the name in a public key, the key length in bytes, and the signature check. A P-256 key is an
/// uncompressed point.
const KINDS: [(AlgorithmIdentifier, usize, &dyn VerificationAlgorithm); 2] = [
    (alg_id::ECDSA_P256, 65, &ECDSA_P256_SHA256_ASN1),
    (alg_id::ED25519, 32, &ED25519),
];
/// Signature schemes for these keys.
const SCHEMES: [SignatureScheme; 2] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ED25519,
];

/// Text that is not a usable key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// There is no public key in it.
    #[error(
        "this is not a public key: give the PEM text of cosign.pub, which starts with -----BEGIN PUBLIC KEY-----"
    )]
    NotPublic,
    /// An unsupported public key.
    #[error(
        "this kind of public key is not supported: use ECDSA on P-256, as cosign does, or Ed25519"
    )]
    PublicKind,
    /// There is no private key in it.
    #[error(
        "this is not a private key: give a PEM text that starts with -----BEGIN PRIVATE KEY-----; `openssl pkcs8 -topk8 -nocrypt` makes one of other forms"
    )]
    NotPrivate,
    /// The private key is encrypted.
    #[error(
        "the private key is encrypted, which is not supported: make one with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`, or sign with cosign"
    )]
    Encrypted,
    /// An unsupported or damaged private key.
    #[error("this kind of private key is not supported: use ECDSA on P-256 or Ed25519")]
    PrivateKind,
}

/// An accepted signer's public key, in DER form.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey(SubjectPublicKeyInfoDer<'static>);

/// A key that signs.
pub struct SigningKey(Arc<dyn rustls::sign::SigningKey>);

impl PublicKey {
    /// Reads a PEM text: `cosign.pub`, or the output of `openssl pkey -pubout`.
    pub fn from_pem(text: &str) -> Result<Self, InvalidKey> {
        let key = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes())
            .map(Self)
            .map_err(|_| InvalidKey::NotPublic)?;
        if key.check().is_none() {
            return Err(InvalidKey::PublicKind);
        }
        Ok(key)
    }

    /// Returns the raw key with the signature check; none if the kind is not supported.
    fn check(&self) -> Option<UnparsedPublicKey<&[u8]>> {
        KINDS.iter().find_map(|(kind, length, algorithm)| {
            let (_, key) = self
                .0
                .split_at_checked(self.0.len().checked_sub(*length)?)?;
            // DER has one form, so bytes can be compared.
            (self.0 == public_key_to_spki(kind, key))
                .then(|| UnparsedPublicKey::new(*algorithm, key))
        })
    }

    /// The key's identity: the digest over its DER form, as printed by `openssl pkey -pubin -outform DER | sha256sum`.
    pub fn id(&self) -> Digest {
        Digest::hash(&self.0)
    }

    /// Returns true if the matching private key signed the message.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.check()
            .is_some_and(|key| key.verify(message, signature).is_ok())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}

impl SigningKey {
    /// Reads a PEM text with an unencrypted private key in PKCS#8.
    pub fn from_pem(text: &str) -> Result<Self, InvalidKey> {
        // cosign encrypts its private keys: `ENCRYPTED SIGSTORE PRIVATE KEY`.
        if text.contains("-----BEGIN ENCRYPTED ") {
            return Err(InvalidKey::Encrypted);
        }
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes())
            .map_err(|_| InvalidKey::NotPrivate)?;
        any_supported_type(&PrivateKeyDer::Pkcs8(der))
            .ok()
            // rustls also takes RSA and P-384.
            .filter(|key| key.choose_scheme(&SCHEMES).is_some())
            .map(Self)
            .ok_or(InvalidKey::PrivateKind)
    }

    /// The matching public key.
    pub fn public(&self) -> PublicKey {
        let key = self.0.public_key().map(SubjectPublicKeyInfoDer::into_owned);
        // Keys of both kinds have a public key; an empty one would verify nothing.
        PublicKey(key.unwrap_or_else(|| SubjectPublicKeyInfoDer::from(Vec::new())))
    }

    /// Signs a message. Returns the same text as `cosign sign-blob --key`, for a `.sig` file.
    pub fn sign(&self, message: &[u8]) -> Result<String, Failure> {
        let failed = || FailureKind::SigningFailed.failure("failed to make the signature");
        let signature = self
            .0
            .choose_scheme(&SCHEMES)
            .ok_or_else(failed)?
            .sign(message)
            .map_err(|_| failed())?;
        Ok(STANDARD.encode(signature))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public().id())
    }
}
