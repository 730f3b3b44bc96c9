//! What bounds the operations of a service: nodes, guests, pools, storages, bridges, features.

use crate::parameter::Value;
use crate::source::document::{Problems, Table};

/// The keys of a scope.
const KEYS: [&str; 7] = [
    "nodes",
    "vmids",
    "templates",
    "pools",
    "storages",
    "bridges",
    "features",
];

/// What each key lists; absent: everything, but no feature.
#[derive(Debug, Default)]
pub(super) struct Scope {
    nodes: Option<String>,
    vmids: Option<String>,
    /// Guests that may be cloned and nothing else.
    templates: Option<String>,
    pools: Option<String>,
    storages: Option<String>,
    bridges: Option<String>,
    features: Option<String>,
}

impl Scope {
    /// Reads every key of it.
    pub(super) fn read(table: &mut Table<'_>, problems: &mut Problems) -> Self {
        let mut list = |key: &str| {
            let list = table.strings(key, problems)?;
            super::super::lines::refuse_empty(&list, problems);
            let numbers = matches!(key, "vmids" | "templates");
            let mut parts = Vec::new();
            for item in list.value {
                let text = if numbers {
                    format!("whole:{}", item.value)
                } else {
                    format!("one:{}", item.value)
                };
                // One item is one item: commas are the lists' own.
                let good = !item.value.contains([',', '#']) && (!numbers || item.value != "*");
                if good && Value::parse(&text).is_ok() {
                    parts.push(item.value);
                    continue;
                }
                let (problem, remedy) = if numbers {
                    (
                        format!("`{}` is no number of a guest and no range", item.value),
                        String::from("write \"101\" or \"100-199\""),
                    )
                } else {
                    (
                        format!("`{}` is no name", item.value),
                        String::from("write a name; `*` stands for a part of one"),
                    )
                };
                problems.add(&item.place, problem, remedy);
            }
            Some(parts.join(","))
        };
        let [nodes, vmids, templates, pools, storages, bridges, features] = KEYS.map(&mut list);
        Self {
            nodes,
            vmids,
            templates,
            pools,
            storages,
            bridges,
            features,
        }
    }

    /// Whether a key that bounds paths is there.
    pub(super) fn bounds_paths(&self) -> bool {
        [&self.nodes, &self.vmids, &self.pools, &self.storages]
            .into_iter()
            .any(Option::is_some)
    }

    /// Whoever may change guests by preset says which.
    pub(super) fn must_bound(&self, table: &Table<'_>, problems: &mut Problems, preset: bool) {
        if self.vmids.is_none()
            && (preset || self.pools.is_some())
            && !problems.concern(&table.place)
        {
            problems.add(
                &table.place.key("vmids"),
                String::from("the service does not say which guests may be changed"),
                String::from(
                    "add `vmids = [\"100-199\"]`; who belongs to a pool is seen in no request",
                ),
            );
        }
    }

    /// What a segment of a path may be, if it is bound.
    pub(super) fn of_segment(&self, segment: &str) -> Option<Value> {
        let one = |list: &Option<String>| Some(format!("one:{}", list.as_ref()?));
        let text = match segment {
            "{node}" => one(&self.nodes),
            "{storage}" => one(&self.storages),
            "{pool}" => one(&self.pools),
            "{vmid}" => self.vmids.as_ref().map(|list| format!("whole:{list}")),
            "{source}" => self.vmids.as_ref().map(|list| match &self.templates {
                Some(more) => format!("whole:{list},{more}"),
                None => format!("whole:{list}"),
            }),
            _ => None,
        };
        Value::parse(&text?).ok()
    }

    /// A name or a type with its lists put in.
    pub(super) fn filled(&self, text: &str) -> String {
        let all = |list: &Option<String>| list.clone().unwrap_or_else(|| String::from("*"));
        // Who is bound to pools must say which.
        let required = if self.pools.is_some() { "!" } else { "" };
        text.replace("{pool!}", required)
            .replace("{nodes}", &all(&self.nodes))
            .replace("{vmids}", &all(&self.vmids))
            .replace("{pools}", &all(&self.pools))
            .replace("{storages}", &all(&self.storages))
            .replace("{bridges}", &all(&self.bridges))
            .replace("{features}", self.features.as_deref().unwrap_or_default())
    }
}
