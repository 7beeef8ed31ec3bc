//! Splits a list's text into items while it arrives, so that memory holds the text of at most one item.

/// Collects the text around the items of a list.
#[derive(Debug, Default)]
pub(super) struct ItemSplitter {
    /// Everything but the items.
    head: Vec<u8>,
    /// The incomplete item.
    item: Vec<u8>,
    /// The open objects and arrays around the next byte.
    depth: usize,
    /// The position of the first item in the head.
    items_at: usize,
    is_in_items: bool,
    is_in_string: bool,
    is_escaped: bool,
}

/// The depth within the items array.
const ITEMS: usize = 2;

impl ItemSplitter {
    /// Splits the next bytes, and returns the items that they complete.
    ///
    /// Does not check the syntax, because the caller parses head and items.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut items = Vec::new();
        while !bytes.is_empty() {
            let length = self.plain_length(bytes);
            let (plain, rest) = bytes.split_at(length);
            self.text().extend_from_slice(plain);
            let Some((&byte, rest)) = rest.split_first() else {
                break;
            };
            bytes = rest;
            items.extend(self.handle(byte));
        }
        items
    }

    /// The list's text so far, without items.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The fields before the items, as an empty list.
    pub(super) fn head_before_items(&self) -> Vec<u8> {
        let before = self.head.get(..self.items_at).unwrap_or_default();
        [before, b"]}"].concat()
    }

    /// The number of bytes that need no decision.
    fn plain_length(&mut self, bytes: &[u8]) -> usize {
        // The byte after a backslash never ends the string.
        if std::mem::take(&mut self.is_escaped) {
            return 1;
        }
        let is_special: fn(&u8) -> bool = if self.is_in_string {
            |byte| matches!(byte, b'"' | b'\\')
        } else {
            |byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b',')
        };
        bytes.iter().position(is_special).unwrap_or(bytes.len())
    }

    /// Handles a byte that may change where the next one belongs.
    fn handle(&mut self, byte: u8) -> Option<Vec<u8>> {
        match (self.is_in_string, byte) {
            (true, b'\\') => self.is_escaped = true,
            (_, b'"') => self.is_in_string = !self.is_in_string,
            (false, b'[') if self.depth + 1 == ITEMS && is_before_items(&self.head) => {
                self.head.push(byte);
                self.depth += 1;
                self.items_at = self.head.len();
                self.is_in_items = true;
                return None;
            }
            (false, b'{' | b'[') => self.depth += 1,
            (false, b',') if self.is_in_items && self.depth == ITEMS => return self.complete(),
            (false, b']') if self.is_in_items && self.depth == ITEMS => {
                let last = self.complete();
                self.is_in_items = false;
                self.depth -= 1;
                self.head.push(byte);
                return last;
            }
            // Saturates, because invalid text may close more than it opens.
            (false, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.text().push(byte);
        None
    }

    /// Ends the item; none if there is nothing between two commas or brackets.
    fn complete(&mut self) -> Option<Vec<u8>> {
        let item = std::mem::take(&mut self.item);
        (!item.trim_ascii().is_empty()).then_some(item)
    }

    /// The text to which the next byte belongs.
    const fn text(&mut self) -> &mut Vec<u8> {
        if self.is_in_items {
            &mut self.item
        } else {
            &mut self.head
        }
    }
}

/// Returns true if the next value belongs to the field `items`.
fn is_before_items(head: &[u8]) -> bool {
    let name = head
        .trim_ascii_end()
        .strip_suffix(b":")
        .and_then(|name| name.trim_ascii_end().strip_suffix(b"\"items\""));
    // Not if a longer name with an escaped quote ends here.
    name.is_some_and(|before| !before.ends_with(b"\\"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Splits a text that arrives in chunks of these lengths.
    fn split(text: &str, lengths: &[usize]) -> (Vec<Value>, Value) {
        let mut splitter = ItemSplitter::default();
        let mut items = Vec::new();
        let mut rest = text.as_bytes();
        for length in lengths.iter().cycle() {
            let (chunk, tail) = rest.split_at((*length).min(rest.len()));
            items.extend(splitter.feed(chunk));
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        let parse = |text: &[u8]| serde_json::from_slice(text).unwrap();
        let items: Vec<Value> = items.iter().map(|item| parse(item)).collect();
        if !items.is_empty() {
            assert!(parse(&splitter.head_before_items()).is_object());
        }
        (items, parse(splitter.head()))
    }

    #[test]
    fn only_the_field_of_the_list_has_items() {
        for (text, items) in [
            (r#"{"items":[{"a":1},{"items":[2,3]}],"kind":"L"}"#, 2),
            (r#"{"metadata":{"items":[1,2]},"items" : [ {} ] }"#, 1),
            (r#"{"x\"items":[1,2],"items":[]}"#, 0),
            (r#"{"kind":"\"items\":[","items":[{"b":"],{\\"}]}"#, 1),
            (r#"{"items":null}"#, 0),
            (r#"{"items":[[1,[2]],"a,b",3]}"#, 3),
        ] {
            for length in [1, 2, 7, 1000] {
                let (found, head) = split(text, &[length]);
                assert_eq!(found.len(), items, "{text}");
                let mut whole: Value = serde_json::from_str(text).unwrap();
                if whole["items"].is_array() {
                    assert_eq!(whole["items"].take(), Value::from(found), "{text}");
                    whole["items"] = json!([]);
                }
                assert_eq!(head, whole, "{text}");
            }
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            r#"[a-z"\\\[\]{},:ü\n]{0,8}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            let name = prop_oneof![Just("items".to_owned()), r#"[a-c"\\]{0,3}"#];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(name, inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_item_is_found_however_the_text_is_cut(
            items in prop::collection::vec(value(), 0..5),
            metadata in value(),
            pretty: bool,
            lengths in prop::collection::vec(1_usize..9, 1..8),
        ) {
            let list = json!({"items": items, "kind": "L", "metadata": metadata});
            let text = if pretty {
                serde_json::to_string_pretty(&list).unwrap()
            } else {
                list.to_string()
            };
            let (found, head) = split(&text, &lengths);
            prop_assert_eq!(found, items);
            prop_assert_eq!(&head["metadata"], &metadata);
        }
    }
}
