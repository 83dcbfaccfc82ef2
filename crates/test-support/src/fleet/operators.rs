//! Operators with a role and a scope.

use net::client::Client;
use net::tls::ClientKey;
use server::api::operators::{AddOperator, AddedOperator, CredentialRequest, IssuedCredential, OperatorRole};
use trust::token::TlsTermination;
use wire::Problem;

use super::{Fleet, Operator};

/// A day, in seconds.
const DAY: u64 = 24 * 3600;

impl Operator {
    /// The connection is gone.
    pub fn is_cut(&self) -> bool {
        self.client.is_closed()
    }

    /// Adds an operator with a token.
    pub async fn add(
        &mut self,
        name: &str,
        role: OperatorRole,
        nodes: Option<&str>,
    ) -> Result<AddedOperator, Problem> {
        self.add_with(name, role, nodes, CredentialRequest::Token { valid_secs: DAY }).await
    }

    /// The same with any credential.
    pub async fn add_with(
        &mut self,
        name: &str,
        role: OperatorRole,
        nodes: Option<&str>,
        credential: CredentialRequest,
    ) -> Result<AddedOperator, Problem> {
        let nodes = nodes.map(str::to_owned);
        let asked = AddOperator { name: name.to_owned(), role, nodes, credential };
        self.post("/v1/operators", &asked).await
    }
}

impl Fleet {
    /// The connection of an operator who is added now, with a token.
    pub async fn operator_with(&self, name: &str, role: OperatorRole, nodes: Option<&str>) -> Operator {
        let added = self.operator().await.add(name, role, nodes).await.unwrap();
        let IssuedCredential::Token { token } = added.issued else { panic!("{added:?}") };
        self.operator_by_token(&token).await
    }

    /// Whoever is at the other end of a connection that is open.
    pub fn operator_of(&self, client: Client) -> Operator {
        Operator { client, url: self.operator_url(), token: None }
    }

    /// A connection that shows a token.
    pub async fn operator_by_token(&self, token: &str) -> Operator {
        let tls = self.without_certificate(TlsTermination::ControlPlane);
        let url = self.operator_url();
        Operator { client: Client::dial(&url, tls).await.unwrap(), url, token: Some(token.to_owned()) }
    }

    /// The connection of an operator who is added now, with a certificate of a key that only this test has.
    pub async fn operator_certified(&self, name: &str, role: OperatorRole, nodes: Option<&str>) -> Operator {
        let key = net::issue::new_key().unwrap();
        let csr_pem = net::issue::proxy_request(&key, name).unwrap();
        let credential = CredentialRequest::Certificate { csr_pem };
        let added = self.operator().await.add_with(name, role, nodes, credential).await.unwrap();
        let IssuedCredential::Certificate { cert_pem } = added.issued else { panic!("{added:?}") };
        let tls = net::tls::client(self.node_ca().cert_pem(), &cert_pem, ClientKey::Pem(&key)).unwrap();
        let url = self.operator_url();
        Operator { client: Client::dial(&url, tls).await.unwrap(), url, token: None }
    }
}
