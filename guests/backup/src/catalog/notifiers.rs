//! The types of notifiers.

use super::{Form, Key, Type, flag, secret, text};

const ON_SUCCESS: Key = flag("on_success", "Notify of successful runs. Default: true.");
const ON_FAILURE: Key = flag("on_failure", "Notify of failed runs. Default: true.");
const URL: Key = secret(
    "url",
    "URL of the webhook in clear text; prefer url_ref, because the URL usually has a token. For github \
     it is that of an issue or pull request. One of the two is required for all types but mail, telegram, \
     postmark, sendgrid, resend and ses.",
);
const METHOD: Key = text(
    "method",
    "HTTP method of webhook and googlechat. Default: POST.",
);
const TOKEN: Key = secret(
    "token",
    "Token of the service in clear text; prefer token_ref. One of the two is required for github, \
     telegram, postmark, sendgrid and resend; for ses it is that of temporary credentials.",
);
const CHAT_ID: Key = text("chat_id", "ID of the Telegram chat. Required for telegram.");
const ENDPOINT: Key = text(
    "endpoint",
    "Host name of the Telegram API. Default: api.telegram.org.",
);
const MESSAGE_THREAD_ID: Key = text(
    "message_thread_id",
    "ID of the topic in the Telegram chat. Default: none.",
);
const HOST: Key = text("host", "Host name of the mail server. Required for mail.");
const PORT: Key = Key::new(
    "port",
    Form::Port,
    "TCP port of the mail server. Default: 25.",
);
const USERNAME: Key = text(
    "username",
    "User name at the mail server. Required for mail. username_ref takes it from a Secret.",
);
const PASSWORD: Key = secret(
    "password",
    "Password at the mail server in clear text; prefer password_ref.",
);
const TLS: Key = flag("tls", "Use TLS to reach the mail server. Default: false.");
const FROM: Key = text(
    "from",
    "Address of the sender. Required for postmark, sendgrid, resend and ses; for mail the default is the \
     user name.",
);
const TO: Key = text(
    "to",
    "Address of the receiver, for mail several with commas between them. Required for mail, postmark, \
     sendgrid, resend and ses.",
);
const REGION: Key = text("region", "AWS region of ses. Default: us-east-1.");
const ACCESS_KEY_ID: Key = secret(
    "access_key_id",
    "AWS access key ID in clear text; prefer access_key_id_ref. One of the two is required for ses.",
);
const SECRET_ACCESS_KEY: Key = secret(
    "secret_access_key",
    "AWS secret access key in clear text; prefer secret_access_key_ref. One of the two is required for \
     ses.",
);

const ALL: &[Key] = &[ON_SUCCESS, ON_FAILURE];
const HOOK: &[Key] = &[URL.required()];
const MESSAGE: &[Key] = &[FROM.required(), TO.required()];

const fn notifier(name: &'static str, own: &'static [&'static [Key]]) -> Type {
    Type::new(name, ALL, own)
}

/// Every type of notifier.
pub(crate) const NOTIFIERS: &[Type] = &[
    notifier(
        "mail",
        &[&[
            HOST.required(),
            PORT,
            // gobackup ends the run without one.
            USERNAME.required(),
            PASSWORD,
            FROM,
            TO.required(),
            TLS,
        ]],
    ),
    notifier("webhook", &[HOOK, &[METHOD]]),
    notifier("googlechat", &[HOOK, &[METHOD]]),
    notifier("slack", &[HOOK]),
    notifier("discord", &[HOOK]),
    notifier("feishu", &[HOOK]),
    notifier("dingtalk", &[HOOK]),
    notifier("wxwork", &[HOOK]),
    notifier("healthchecks", &[HOOK]),
    notifier("github", &[HOOK, &[TOKEN.required()]]),
    notifier(
        "telegram",
        &[&[
            CHAT_ID.required(),
            TOKEN.required(),
            ENDPOINT,
            MESSAGE_THREAD_ID,
        ]],
    ),
    notifier("postmark", &[MESSAGE, &[TOKEN.required()]]),
    notifier("sendgrid", &[MESSAGE, &[TOKEN.required()]]),
    notifier("resend", &[MESSAGE, &[TOKEN.required()]]),
    notifier(
        "ses",
        &[
            MESSAGE,
            &[
                REGION,
                ACCESS_KEY_ID.required(),
                SECRET_ACCESS_KEY.required(),
                TOKEN,
            ],
        ],
    ),
];

/// The types with headers of HTTP, each from a Secret.
pub(crate) const WITH_HEADERS: [&str; 2] = ["webhook", "googlechat"];
