//! Platform administrators, and a browser that stores the cookies of its session.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

use super::Server;
use super::client::{Reply, Request};
use super::users::{User, token};

/// The e-mail address in `PLATFORM_ADMIN_EMAILS` of every test server.
pub const ROOT: &str = "root@example.com";

/// A user's session together with a cookie jar.
pub struct Browser<'a> {
    pub user: User<'a>,
    cookies: RefCell<BTreeMap<String, String>>,
}

impl Server {
    /// The platform administrator, without an account.
    pub fn root(&self) -> User<'_> {
        self.user(Uuid::new_v4(), ROOT)
    }

    /// A session of a user with this id and e-mail address.
    pub fn user(&self, id: Uuid, email: &str) -> User<'_> {
        User {
            server: self,
            id,
            token: token(id, email),
            email: email.to_owned(),
            account: String::new(),
        }
    }
}

impl<'a> Browser<'a> {
    pub fn new(user: User<'a>) -> Self {
        Self {
            user,
            cookies: RefCell::default(),
        }
    }

    pub fn cookie(&self, name: &str) -> Option<String> {
        self.cookies.borrow().get(name).cloned()
    }

    pub fn set(&self, name: &str, value: &str) {
        self.cookies.borrow_mut().insert(name.to_owned(), value.to_owned());
    }

    pub fn remove_cookie(&self, name: &str) {
        self.cookies.borrow_mut().remove(name);
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        let request = self.user.request(method, path);
        let cookies = self.cookies.borrow();
        let pairs: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        match pairs.is_empty() {
            true => request,
            false => request.cookie(&pairs.join("; ")),
        }
    }

    /// Sends the request and stores the cookies of the response.
    #[track_caller]
    pub fn send(&self, request: Request) -> Reply {
        let reply = request.send();
        for line in reply.headers.get_all("set-cookie") {
            let line = line.to_str().unwrap();
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            match line.contains("Max-Age=0") {
                true => self.remove_cookie(name),
                false => self.set(name, value),
            }
        }
        reply
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.send(self.request("GET", path))
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: Value) -> Reply {
        self.send(self.request("POST", path).json(&body))
    }

    /// Enters support mode.
    #[track_caller]
    pub fn support(&self, account: &str) -> Value {
        self.send(self.request("POST", &format!("/api/admin/accounts/{account}/support")))
            .ok()
    }

    /// Leaves support mode.
    #[track_caller]
    pub fn stop(&self) -> Reply {
        self.send(self.request("POST", "/api/admin/stop-support"))
    }
}
