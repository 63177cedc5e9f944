//! The published error codes: a closed list with one row a code. Responses, log entries and the API reference use
//! these rows.

use actix_web::http::StatusCode;

/// What responses with a code have in common.
struct Row {
    status: StatusCode,
    /// The published code. Several rows may have the same.
    code: &'static str,
    /// The message of a response that has none of its own, and of the example in the reference.
    message: &'static str,
    /// The headers of every such response.
    headers: &'static [&'static str],
    /// The system whose failure the log entry names, if the code reports one.
    system: &'static str,
    /// The published description, independent of the operation.
    description: &'static str,
}

const DEFAULTS: Row = Row {
    status: StatusCode::INTERNAL_SERVER_ERROR,
    code: "",
    message: "",
    headers: &[],
    system: "",
    description: "",
};

const LIMIT_HEADERS: &[&str] = &[
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "Retry-After",
];

macro_rules! error_codes {
    ($($name:ident { $($field:ident: $value:expr,)* })*) => {
        /// The kind of an error response.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ErrorCode {
            $($name),*
        }

        impl ErrorCode {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            fn row(self) -> Row {
                match self {
                    $(Self::$name => Row { $($field: $value,)* ..DEFAULTS }),*
                }
            }
        }
    };
}

error_codes! {
    Precondition {
        status: StatusCode::BAD_REQUEST,
        code: "VALIDATION_ERROR",
        message: "a campaign in status sending cannot be deleted",
        description: "The resource's current state does not allow this operation. `message` gives the reason.",
    }
    Auth {
        status: StatusCode::UNAUTHORIZED,
        code: "AUTH_ERROR",
        message: "A session or an API key is required",
        headers: &["WWW-Authenticate"],
        description: "The session or API key is missing, expired, revoked or invalid; the caller is not a member of \
            the account; the account is suspended; or the caller's role does not permit this operation.",
    }
    Forbidden {
        status: StatusCode::FORBIDDEN,
        code: "FORBIDDEN",
        message: "Cross-site requests with a session cookie are not allowed",
        description: "The API key lacks the operation's scope, which `details.required_scope` names; or a browser \
            sent the request from another site with a session cookie.",
    }
    NotFound {
        status: StatusCode::NOT_FOUND,
        code: "NOT_FOUND",
        message: "Not found",
        description: "The resource does not exist or belongs to another account.",
    }
    MethodNotAllowed {
        status: StatusCode::METHOD_NOT_ALLOWED,
        code: "METHOD_NOT_ALLOWED",
        message: "Method not allowed; this path accepts GET, HEAD, POST",
        headers: &["Allow"],
        description: "The path does not accept this method. `Allow` lists the accepted methods.",
    }
    SlowBody {
        status: StatusCode::REQUEST_TIMEOUT,
        code: "REQUEST_TIMEOUT",
        message: "The request body did not arrive in time",
        description: "The request body did not arrive in time: within 30 seconds. A file has one more second for \
            every 16 KiB, and at most 30 seconds between two chunks.",
    }
    Conflict {
        status: StatusCode::CONFLICT,
        code: "CONFLICT",
        message: "A request with this idempotency key is still running",
        description: "A request with the same `Idempotency-Key` is still running, or the key was used with another \
            path or body.",
    }
    Changed {
        status: StatusCode::PRECONDITION_FAILED,
        code: "PRECONDITION_FAILED",
        message: "The row is not as `If-Match` says; read it again",
        headers: &["ETag"],
        description: "`If-Match` does not have the row's present entity tag, which `details.etag` gives. Nothing was \
            changed.",
    }
    TooLarge {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        code: "PAYLOAD_TOO_LARGE",
        message: "The request body is too large",
        description: "The request body is too large.",
    }
    MediaType {
        status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
        code: "UNSUPPORTED_MEDIA_TYPE",
        message: "The request body must be application/json",
        description: "The request body has an unsupported media type or a content encoding.",
    }
    Invalid {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        code: "VALIDATION_ERROR",
        message: "Invalid data",
        description: "A value in the path, query, headers or body is missing or invalid. `details.fields` lists the \
            invalid fields with their errors.",
    }
    RateLimited {
        status: StatusCode::TOO_MANY_REQUESTS,
        code: "RATE_LIMIT",
        message: "Too many requests",
        headers: LIMIT_HEADERS,
        description: "Too many requests with unknown API keys from this address (60 a minute), more idempotency keys \
            than an account has for a UTC day (50,000), or more requests than the operator allows \
            (`REQUESTS_PER_MINUTE`). `Retry-After` gives the seconds to wait.",
    }
    TooManyAtOnce {
        status: StatusCode::TOO_MANY_REQUESTS,
        code: "RATE_LIMIT",
        message: "This account has 3 imports under way, which is the limit",
        headers: LIMIT_HEADERS,
        description: "The concurrency limit is reached. Try again after `Retry-After` seconds.",
    }
    Internal {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        code: "INTERNAL_ERROR",
        message: "Internal error",
        description: "An internal server error. The server's log contains the cause under the request's id.",
    }
    Whatsapp {
        status: StatusCode::BAD_GATEWAY,
        code: "WHATSAPP_ERROR",
        message: "WhatsApp is unavailable; try again later",
        system: "WhatsApp",
        description: "WhatsApp rejected the call, cannot be reached, or is not configured. `details` contains \
            WhatsApp's error.",
    }
    Payment {
        status: StatusCode::BAD_GATEWAY,
        code: "PAYMENT_ERROR",
        message: "The payment gateway is unavailable",
        system: "payment gateway",
        description: "The payment gateway cannot be reached, returned an error, or is not configured.",
    }
    Extraction {
        status: StatusCode::BAD_GATEWAY,
        code: "VPS_ERROR",
        message: "The AI service is unavailable",
        system: "AI service",
        description: "The AI service cannot be reached, returned an error, or is not configured.",
    }
    Storage {
        status: StatusCode::BAD_GATEWAY,
        code: "STORAGE_ERROR",
        message: "The media store is unavailable",
        system: "media store",
        description: "The media store cannot be reached, returned an error, or is not configured.",
    }
    Unavailable {
        status: StatusCode::SERVICE_UNAVAILABLE,
        code: "UNAVAILABLE",
        message: "The service is temporarily unavailable",
        headers: &["Retry-After"],
        description: "The database or this server is unavailable. Try again after `Retry-After` seconds.",
    }
}

impl ErrorCode {
    pub fn status(self) -> StatusCode {
        self.row().status
    }

    /// The published code.
    pub fn as_str(self) -> &'static str {
        self.row().code
    }

    pub(crate) fn message(self) -> &'static str {
        self.row().message
    }

    pub(crate) fn headers(self) -> &'static [&'static str] {
        self.row().headers
    }

    pub(crate) fn description(self) -> &'static str {
        self.row().description
    }

    pub(super) fn system(self) -> &'static str {
        self.row().system
    }
}
