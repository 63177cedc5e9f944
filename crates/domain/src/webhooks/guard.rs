//! The rules of [`crate::egress`], for whoever names an endpoint's address.

use super::{AddressGuard, UrlRefusal};
use crate::egress::{AllowList, Target};

impl AddressGuard for AllowList {
    fn allows_url(&self, url: &str) -> Result<(), UrlRefusal> {
        Target::parse(url, self)
            .map(|_| ())
            .map_err(|refusal| UrlRefusal(refusal.to_string()))
    }
}
