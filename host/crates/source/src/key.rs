//! Keys that sign plugins: ECDSA on P-256 with SHA-256, as cosign makes them, and Ed25519.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::Digest;
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ED25519, EcdsaKeyPair,
        Ed25519KeyPair, KeyPair, UnparsedPublicKey, VerificationAlgorithm,
    },
};
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, pem::PemObject};

use super::Failure;

/// The DER prefix of a P-256 key with an uncompressed point (RFC 5480). DER has one form, so bytes can be compared.
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// An uncompressed point, in bytes.
const P256_POINT: usize = 65;
/// The DER prefix of an Ed25519 key (RFC 8410).
const ED25519_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// An Ed25519 key, in bytes.
const ED25519_KEY: usize = 32;

/// A text that is not a usable key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// There is no public key in it.
    #[error(
        "this is not a public key: give the PEM text of cosign.pub, which starts with -----BEGIN PUBLIC KEY-----"
    )]
    NotPublic,
    /// It is a public key of another kind.
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
    /// It is a private key of another kind, or damaged.
    #[error("this kind of private key is not supported: use ECDSA on P-256 or Ed25519")]
    PrivateKind,
}

/// A public key of an accepted signer.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    kind: Kind,
    key: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    P256,
    Ed25519,
}

/// A key that signs.
pub struct SigningKey(Pair);

enum Pair {
    P256(Box<EcdsaKeyPair>),
    Ed25519(Box<Ed25519KeyPair>),
}

impl PublicKey {
    /// Reads a PEM text: `cosign.pub`, or the output of `openssl pkey -pubout`.
    pub fn from_pem(text: &str) -> Result<Self, InvalidKey> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes())
            .map_err(|_| InvalidKey::NotPublic)?;
        let read = |kind: Kind, length: usize| {
            let key = der.strip_prefix(kind.prefix())?;
            (key.len() == length).then(|| Self {
                kind,
                key: key.to_vec(),
            })
        };
        read(Kind::P256, P256_POINT)
            .or_else(|| read(Kind::Ed25519, ED25519_KEY))
            .ok_or(InvalidKey::PublicKind)
    }

    /// The identity of the key: the digest of its DER form, as printed by `openssl pkey -pubin -outform DER |
    /// sha256sum`.
    pub fn id(&self) -> Digest {
        Digest::of_parts([self.kind.prefix(), self.key.as_slice()])
    }

    /// The key as PEM text.
    pub fn to_pem(&self) -> String {
        let text = STANDARD.encode([self.kind.prefix(), self.key.as_slice()].concat());
        // A line has at most 64 characters; base64 is ASCII.
        let (first, second) = text.split_at(text.len().min(64));
        let lines = [first, second].join("\n");
        format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            lines.trim_end()
        )
    }

    /// Returns true if the private key of this public key signed the message.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &dyn VerificationAlgorithm = match self.kind {
            Kind::P256 => &ECDSA_P256_SHA256_ASN1,
            Kind::Ed25519 => &ED25519,
        };
        let key = UnparsedPublicKey::new(algorithm, &self.key);
        key.verify(message, signature).is_ok()
    }
}

impl Kind {
    const fn prefix(self) -> &'static [u8] {
        match self {
            Self::P256 => &P256_PREFIX,
            Self::Ed25519 => &ED25519_PREFIX,
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}

impl SigningKey {
    /// Reads a PEM text with a private key in PKCS#8 that is not encrypted.
    pub fn from_pem(text: &str) -> Result<Self, InvalidKey> {
        if text.contains("-----BEGIN ENCRYPTED ") {
            return Err(InvalidKey::Encrypted);
        }
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes())
            .map_err(|_| InvalidKey::NotPrivate)?;
        let der = der.secret_pkcs8_der();
        let random = SystemRandom::new();
        let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der, &random);
        if let Ok(pair) = p256 {
            return Ok(Self(Pair::P256(Box::new(pair))));
        }
        // openssl omits the public key.
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der)
            .map(|pair| Self(Pair::Ed25519(Box::new(pair))))
            .map_err(|_| InvalidKey::PrivateKind)
    }

    /// The public key of this private key.
    pub fn public(&self) -> PublicKey {
        let (kind, key) = match &self.0 {
            Pair::P256(pair) => (Kind::P256, pair.public_key().as_ref()),
            Pair::Ed25519(pair) => (Kind::Ed25519, pair.public_key().as_ref()),
        };
        PublicKey {
            kind,
            key: key.to_vec(),
        }
    }

    /// Signs a message. The text is the output of `cosign sign-blob --key` and the content of a `.sig` file.
    pub fn sign(&self, message: &[u8]) -> Result<String, Failure> {
        match &self.0 {
            Pair::P256(pair) => pair
                .sign(&SystemRandom::new(), message)
                .map(|signature| STANDARD.encode(signature))
                .map_err(|_| Failure::MakeSignature),
            Pair::Ed25519(pair) => Ok(STANDARD.encode(pair.sign(message))),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public().id())
    }
}
