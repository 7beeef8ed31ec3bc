//! `openssl enc`, which gobackup runs as `openssl CIPHER`.
//!
//! The cipher is a subcommand, so another name, such as `cms`, would run another one.

use super::{Program, Syntax, Value, contains_ignoring_case};

/// `openssl enc`. The ciphers are options too.
pub(crate) const OPENSSL: Program = Program {
    is_flag: |word| word.strip_prefix('-').is_some_and(is_cipher),
    ..Program::new(
        "openssl",
        Syntax::Words,
        &[
            (Value::None, "-pbkdf2 -salt"),
            // openssl accepts 2,147,483,647, which would take half an hour.
            (Value::Number(1, 100_000_000), "-iter"),
            (Value::Choice(DIGESTS), "-md"),
        ],
    )
};

/// The digests in `openssl dgst -list`, except those without a fixed length and those for old protocols.
const DIGESTS: &str = "blake2b512 blake2s256 md5 ripemd160 rmd160 sha1 sha224 sha256 sha3-224 sha3-256 sha3-384 \
     sha3-512 sha384 sha512 sha512-224 sha512-256 sm3 whirlpool";

/// Returns true for an `openssl enc` cipher, in any case.
pub(crate) fn is_cipher(name: &str) -> bool {
    contains_ignoring_case(CIPHERS, name)
}

/// The ciphers in OpenSSL 3's `openssl enc -list`, except those that wrap keys. Some need a provider for old
/// algorithms.
pub(crate) const CIPHERS: &str = "aes-128-cbc aes-128-cfb aes-128-cfb1 aes-128-cfb8 aes-128-ctr aes-128-ecb aes-128-ofb \
     aes-192-cbc aes-192-cfb aes-192-cfb1 aes-192-cfb8 aes-192-ctr aes-192-ecb aes-192-ofb \
     aes-256-cbc aes-256-cfb aes-256-cfb1 aes-256-cfb8 aes-256-ctr aes-256-ecb aes-256-ofb aes128 \
     aes192 aes256 aria-128-cbc aria-128-cfb aria-128-cfb1 aria-128-cfb8 aria-128-ctr \
     aria-128-ecb aria-128-ofb aria-192-cbc aria-192-cfb aria-192-cfb1 aria-192-cfb8 aria-192-ctr \
     aria-192-ecb aria-192-ofb aria-256-cbc aria-256-cfb aria-256-cfb1 aria-256-cfb8 aria-256-ctr \
     aria-256-ecb aria-256-ofb aria128 aria192 aria256 bf bf-cbc bf-cfb bf-ecb bf-ofb blowfish \
     camellia-128-cbc camellia-128-cfb camellia-128-cfb1 camellia-128-cfb8 camellia-128-ctr \
     camellia-128-ecb camellia-128-ofb camellia-192-cbc camellia-192-cfb camellia-192-cfb1 \
     camellia-192-cfb8 camellia-192-ctr camellia-192-ecb camellia-192-ofb camellia-256-cbc \
     camellia-256-cfb camellia-256-cfb1 camellia-256-cfb8 camellia-256-ctr camellia-256-ecb \
     camellia-256-ofb camellia128 camellia192 camellia256 cast cast-cbc cast5-cbc cast5-cfb \
     cast5-ecb cast5-ofb chacha20 des des-cbc des-cfb des-cfb1 des-cfb8 des-ecb des-ede \
     des-ede-cbc des-ede-cfb des-ede-ecb des-ede-ofb des-ede3 des-ede3-cbc des-ede3-cfb \
     des-ede3-cfb1 des-ede3-cfb8 des-ede3-ecb des-ede3-ofb des-ofb des3 desx desx-cbc idea \
     idea-cbc idea-cfb idea-ecb idea-ofb rc2 rc2-128 rc2-40 rc2-40-cbc rc2-64 rc2-64-cbc rc2-cbc \
     rc2-cfb rc2-ecb rc2-ofb rc4 rc4-40 seed seed-cbc seed-cfb seed-ecb seed-ofb sm4 sm4-cbc \
     sm4-cfb sm4-ctr sm4-ecb sm4-ofb";
