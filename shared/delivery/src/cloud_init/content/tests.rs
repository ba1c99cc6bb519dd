use super::*;

fn refused(kind: &str, text: &str) -> (usize, String) {
    let found = check(kind, text).err().unwrap_or_else(|| panic!("{text}"));
    (found.line, found.message)
}

#[test]
fn boot_commands_that_cloud_init_does_not_run_are_refused() {
    for text in [
        "bootcmd: []\n",
        "bootcmd:\n- echo a\n- [echo, 1, {a: b}]\n-\n- '1'\n- |\n  echo a: b\n- !!str yes\n",
        "a: &a echo\nbootcmd:\n- *a\n- 1.2.3.4\n",
    ] {
        check("text/cloud-config", text).unwrap();
    }
    for (text, line) in [
        ("bootcmd:\n- a\n- echo status: ok\n", 3),
        ("bootcmd: [a, true]\n", 1),
        ("bootcmd:\n- 5\n", 2),
        ("'bootcmd':\n- 2020-01-01\n", 2),
        ("bootcmd:\n- {a: b}\n", 2),
        ("bootcmd:\n- !!binary SGk=\n", 2),
        ("a: &a {b: c}\nbootcmd:\n- a\n- *a\n", 4),
        ("bootcmd: echo a\n", 1),
        ("bootcmd:\n", 1),
        ("a: &a [b]\nbootcmd: *a\n", 2),
        // These keys may be `bootcmd`, too.
        ("a: b\n<<: {bootcmd: [1]}\n", 2),
        ("\"boot\\x63md\": [1]\n", 1),
        ("a: &a bootcmd\n*a : [1]\n", 2),
    ] {
        let (found, message) = refused("text/cloud-config", text);
        assert_eq!(found, line, "{text}: {message}");
        assert!(message.starts_with("virtfleetctl does not support "), "{message}");
    }
    for (item, kind) in [("echo a: b", "is a mapping ("), ("yes", "is a boolean, ")] {
        let (_, message) = refused("text/cloud-config", &format!("bootcmd:\n- {item}\n"));
        assert!(
            message.contains(kind) && message.ends_with("; write it in quotes"),
            "{message}"
        );
    }
}

#[test]
fn merge_rules_that_drop_the_text_are_refused() {
    for rules in [
        "dict(recurse_array)+list(append)",
        "' List(append) + DICT() '",
        "[{name: dict, settings: [no_replace]}, {settings: [append], name: list}]",
        "\n- [list, append]\n- [dict]\n",
    ] {
        for key in ["merge_how", "merge_type"] {
            check("text/cloud-config", &format!("a: b\n{key}: {rules}\n")).unwrap();
        }
    }
    for rules in [
        "",
        "''",
        "5",
        "dict",
        "list(append)",
        "dict()+lists()",
        "dict ()",
        "{dict: []}",
        "[dict, list]",
        "[[list, append]]",
        "[{name: dict}]",
        "[{name: dict, settings: append}]",
        "[{name: dict, settings: [yes]}]",
        "[[]]",
        "[{name: dict, settings: []}, {name: set, settings: []}]",
    ] {
        for key in ["merge_how", "merge_type"] {
            let (line, message) = refused("text/cloud-config", &format!("a: b\n{key}: {rules}\n"));
            assert!(
                line == 2 && message.contains("these merge rules"),
                "{rules}: {message}"
            );
        }
    }
}

#[test]
fn archives_that_cloud_init_drops_are_refused() {
    for text in [
        "",
        "[]\n",
        "- '#!/bin/sh'\n- content: ''\n",
        "- |\n  #cloud-config\n  bootcmd: [a]\n- content: 'a: b'\n- type: text/x-shellscript-per-boot\n  content: a\n",
        "- filename: a.sh\n  content: '#!/bin/sh'\n- filename: b.sh\n  content: '#!/bin/sh'\n",
    ] {
        check("text/cloud-config-archive", text).unwrap();
    }
    for (text, line, why) in [
        ("a: b\n", 1, "a cloud-config-archive must be a list"),
        ("- ''\n- 5\n", 2, "an item that is no text"),
        ("- [a]\n", 1, "an item that is no text"),
        ("- &a {content: ''}\n- *a\n", 2, "an item that is no text"),
        ("- content: a: b\n", 1, "mapping values are not allowed"),
        ("- content: 5\n", 1, "a value of an archive"),
        ("- content: ''\n  type: [a]\n", 2, "a value of an archive"),
        ("- content: ''\n  launch-index: '1'\n", 2, "a key other than"),
        (
            "- content: ''\n  type: cloud-config\n",
            1,
            "the type cloud-config in an archive",
        ),
        (
            "- content: ''\n  type: text/plain\n",
            1,
            "the type text/plain in an archive",
        ),
        (
            "- ''\n- \"#include\\nhttps://x/\"\n",
            2,
            "the type text/x-include-url in an archive",
        ),
        ("- filename: \"a\\nb\"\n", 1, "this `filename`"),
        ("- filename: a\n- filename: a\n", 2, "this `filename`"),
        ("- |\n  #!/bin/sh\n  \ta\n", 3, "a tab behind spaces"),
        (
            "- jq\n",
            1,
            "line 1 of this item's content: a cloud-config must be a mapping",
        ),
        (
            "- ''\n- |\n  a: b\n  bootcmd:\n  - 5\n",
            2,
            "line 3 of this item's content: virtfleetctl does not support an item",
        ),
    ] {
        let (found, message) = refused("text/cloud-config-archive", text);
        assert!(
            found == line && message.contains(why),
            "{text}: {found}: {message}"
        );
    }
    let (line, message) = refused("text/cloud-config-jsonp", "#cloud-config-jsonp\n[]\n");
    assert!(
        line == 1 && message.contains("write a #cloud-config"),
        "{message}"
    );
}
