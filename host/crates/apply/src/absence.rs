//! An apply that also removes the fields that a child states as absent.
//!
//! Almost every update has none. The others first make the children's manager the only owner of the existing fields,
//! because an apply removes only fields without another manager.

use innkeeper_model::{Object, ResourceVersion, Uid};
use innkeeper_plan::absence::{self, Owners};
use serde_json::{Map, Value};

use super::{Error, ErrorKind, Session, Writer, Written, request::Address};

/// An update for a child that states fields as absent.
pub(super) struct Absences<'a> {
    address: Address<'a>,
    manager: &'a str,
    account: Option<&'a str>,
    body: &'a Map<String, Value>,
    uid: &'a Uid,
    version: ResourceVersion,
    /// The live child, with everyone's managed fields.
    live: &'a Object,
}

impl<'a> Absences<'a> {
    pub(super) const fn new(
        address: Address<'a>,
        session: &'a Session<'_>,
        body: &'a Map<String, Value>,
        (uid, version): (&'a Uid, ResourceVersion),
        live: &'a Object,
    ) -> Self {
        Self {
            address,
            manager: session.manager,
            account: session.account,
            body,
            uid,
            version,
            live,
        }
    }
}

impl Writer {
    /// Removes the fields and applies the rest.
    pub(super) async fn update_with_absences(
        &self,
        update: &Absences<'_>,
    ) -> Result<Written, Error> {
        let stated = absence::absences(update.body);
        let stored = parse(&update.live.json);
        let mut version = update.version;
        // Otherwise the plan is outdated: the apply below is refused, and the next pass plans anew.
        if version == update.live.resource_version {
            let present = absence::present(&stored, &stated);
            let owners = Owners::from_object(update.live);
            let patched = self.take_over(update, owners, &present, false).await?;
            version = patched.map_or(version, |patched| patched.resource_version);
        }
        // Left out, not sent as null: an apply keeps a map or list that is null, and most kinds refuse the null.
        let body = absence::without_absences(update.body, &stored, &[]);
        let written = self.apply_part(update, &body, version).await?;
        let stored = parse(&written.json);
        // The API server may replace the removed fields by defaults.
        let refilled = absence::present(&stored, &stated);
        if refilled.is_empty() {
            return Ok(written);
        }
        self.remove_defaults(update, (written, stored), &refilled)
            .await
    }

    /// Sets fields to null that the API server has filled in again, where the kind allows that.
    async fn remove_defaults(
        &self,
        update: &Absences<'_>,
        (mut written, mut stored): (Written, Value),
        refilled: &[absence::Path],
    ) -> Result<Written, Error> {
        // An apply leaves maps and lists as they are.
        let composite = absence::composite(&stored, refilled);
        let owners = Owners::from_value(&stored);
        match self.take_over(update, owners, &composite, true).await {
            Ok(Some(nulled)) => {
                stored = parse(&nulled.json);
                written = nulled;
            }
            Err(error) if error.kind != ErrorKind::Rejected => return Err(error),
            // The kind takes no null here, so the field can never be absent.
            Ok(None) | Err(_) => {}
        }
        // Here the nulls are sent: they make the manager own the fields, so that the next plan finds nothing to do.
        let body = absence::without_absences(update.body, &stored, refilled);
        match self
            .apply_part(update, &body, written.resource_version)
            .await
        {
            // The rest is applied, and another attempt would be refused as well.
            Err(error) if error.kind == ErrorKind::Rejected => Ok(written),
            result => result,
        }
    }

    /// Makes the manager the fields' only owner; none if there are none.
    async fn take_over(
        &self,
        update: &Absences<'_>,
        owners: Option<Owners>,
        fields: &[absence::Path],
        as_null: bool,
    ) -> Result<Option<Written>, Error> {
        let patch = owners
            .filter(|_| !fields.is_empty())
            .and_then(|owners| owners.take_over(update.manager, fields, as_null));
        let Some(patch) = patch else { return Ok(None) };
        let verb = "take fields away from";
        let request = update.address.json_patch(verb, update.manager, &patch);
        self.exchange(request.act_as(update.account))
            .await
            .map(Some)
    }

    async fn apply_part(
        &self,
        update: &Absences<'_>,
        body: &Map<String, Value>,
        version: ResourceVersion,
    ) -> Result<Written, Error> {
        let request = update
            .address
            .update(update.manager, body, update.uid, version);
        self.exchange(request.act_as(update.account)).await
    }
}

fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}
