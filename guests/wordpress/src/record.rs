//! What annotations on a managed database's claim record about its data. They outlive the parent.
//!
//! The image creates schema and user only at a data directory's first start, and no server reads every other server's
//! data. So a spec that does not fit the data must be rejected, not started.

use std::collections::BTreeMap;

use innkeeper_kit::{claim::ObservedClaim, labels, workload::Workload};

use crate::{
    api::Managed,
    site::{Site, product_of},
};

/// The annotation on the database's claim: which kind of server wrote the data.
const FLAVOR: &str = "example.com/database-flavor";
/// The annotation on the database's claim: the image that was ready last.
const IMAGE: &str = "example.com/database-image";
/// The annotation on the database's claim: the site's schema.
const SCHEMA: &str = "example.com/database-name";
/// The annotation on the database's claim: the site's table prefix.
const PREFIX: &str = "example.com/table-prefix";

/// The official images' prefix.
const DEFAULT_PREFIX: &str = "wp_";

/// MySQL versions that an upgrade cannot skip, because each only reads data from the one before. Add a version once
/// its successor exists.
const STEPS: [[u64; 2]; 5] = [[5, 5], [5, 6], [5, 7], [8, 0], [8, 4]];

/// One database's record; empty until the database has been ready, because it holds no data before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    flavor: Option<String>,
    image: Option<String>,
    schema: Option<String>,
    prefix: Option<String>,
}

impl Record {
    /// Reads the record from the database's claim and StatefulSet.
    pub(crate) fn observed(claim: Option<&ObservedClaim>, database: Option<&Workload>) -> Self {
        let ready = database
            .filter(|workload| workload.is_settled() && workload.status.ready_replicas > 0)
            // Otherwise the ready Pod has another template than the observed one.
            .filter(|workload| workload.status.updated_replicas >= workload.replicas());
        let ready_image = ready.and_then(|workload| workload.image("mysql"));
        let is_available = ready.is_some_and(|workload| workload.status.available_replicas > 0);
        let noted = |key: &str| claim?.annotation(key).map(ToOwned::to_owned);
        let image = match (noted(IMAGE), ready_image) {
            // The first image has written the data. A later one must also be available, which takes the minimum time
            // ready, because a server can exit right after its start.
            (None, ready) => ready.map(ToOwned::to_owned),
            (_, Some(ready)) if is_available => Some(ready.to_owned()),
            (last, _) => last,
        };
        match image {
            // There is no data yet, so the other annotations only repeat an earlier spec.
            None => Self::default(),
            image => Self {
                image,
                flavor: noted(FLAVOR),
                schema: noted(SCHEMA),
                prefix: noted(PREFIX),
            },
        }
    }

    /// True once this image has been ready long enough to be recorded.
    pub(crate) fn has_image(&self, image: &str) -> bool {
        self.image.as_deref() == Some(image)
    }

    /// The claim's annotations.
    pub(crate) fn annotations(
        &self,
        site: &Site<'_>,
        managed: &Managed,
    ) -> BTreeMap<String, String> {
        let image = self.image.clone().map(|image| (IMAGE.to_owned(), image));
        [
            (FLAVOR, flavor_of(site.database_image())),
            (SCHEMA, &managed.database_name),
            (PREFIX, table_prefix(site)),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into_iter()
        .chain(image)
        .collect()
    }

    /// Checks that the spec's server reads the data, and that the site finds its tables there.
    pub(crate) fn check(&self, site: &Site<'_>, managed: &Managed) -> Result<(), String> {
        let claim = site.mysql_name();
        let image = site.database_image();
        if let Some(flavor) = &self.flavor
            && flavor != flavor_of(image)
        {
            return Err(format!(
                "spec.database.managed.image: claim {claim} holds data of {flavor}, which {image} cannot read: use an image of {flavor}"
            ));
        }
        if let Some(last) = &self.image {
            check_version(image, last)?;
        }
        let names = [
            (
                "managed.databaseName",
                "schema",
                SCHEMA,
                &self.schema,
                &*managed.database_name,
            ),
            (
                "tablePrefix",
                "tables with the prefix",
                PREFIX,
                &self.prefix,
                table_prefix(site),
            ),
        ];
        for (field, noun, annotation, recorded, wanted) in names {
            if let Some(recorded) = recorded
                && recorded != wanted
            {
                return Err(format!(
                    "spec.database.{field}: claim {claim} holds the {noun} {recorded}, and not {wanted}: \
                     state {recorded}, or, if you have renamed it in the data, set the annotation {annotation} \
                     of the claim to {wanted}"
                ));
            }
        }
        Ok(())
    }
}

fn table_prefix<'a>(site: &Site<'a>) -> &'a str {
    let database = site.spec.database.as_ref();
    database
        .and_then(|database| database.table_prefix.as_deref())
        .unwrap_or(DEFAULT_PREFIX)
}

fn flavor_of(image: &str) -> &'static str {
    if product_of(image).contains("mariadb") {
        "MariaDB"
    } else {
        "MySQL"
    }
}

/// Checks that an image can read data from another image for the same product.
fn check_version(image: &str, last: &str) -> Result<(), String> {
    let new = numbers_of(image);
    let old = numbers_of(last);
    if product_of(image) != product_of(last) || new.is_empty() || old.is_empty() {
        return Ok(());
    }
    let differs = new.iter().zip(&old).find(|(new, old)| new != old);
    if differs.is_some_and(|(new, old)| new < old) {
        return Err(format!(
            "spec.database.managed.image: {image} is older than the running {last}, a data directory cannot \
             be downgraded"
        ));
    }
    // A tag without a minor version means the newest one.
    let series = |numbers: &[u64]| [numbers[0], numbers.get(1).copied().unwrap_or(u64::MAX)];
    let new = series(&new);
    let old = series(&old);
    let left_out: Vec<String> = STEPS
        .iter()
        .filter(|step| old < **step && **step < new)
        .map(|[major, minor]| format!("{major}.{minor}"))
        .collect();
    if left_out.is_empty() || flavor_of(image) != "MySQL" {
        return Ok(());
    }
    Err(format!(
        "spec.database.managed.image: {image} cannot read the data of {last}: go through {}",
        left_out.join(" and ")
    ))
}

/// The numbers at the start of an image tag; empty if it starts with another character.
fn numbers_of(image: &str) -> Vec<u64> {
    let tag = labels::version_of(image).unwrap_or_default();
    let end = tag.find(|c: char| !c.is_ascii_digit() && c != '.');
    tag[..end.unwrap_or(tag.len())]
        .split('.')
        .map_while(|number| number.parse().ok())
        .collect()
}
