//! Texts that cloud-init drops, alone or with all other user-data, and like ones that it keeps.

pub(super) const CLOUD_CONFIGS: [&str; 34] = [
    // Tabs.
    "packages: [jq]\t# why\n",
    "a:\n-\tb\n",
    "a:\tb\n",
    "a: b\n\t\n",
    // Boot commands that are no text.
    "bootcmd:\n- echo a\n- echo status: ok\n",
    "bootcmd:\n- echo a\n- true\n",
    "bootcmd:\n- 5\n- echo a\n",
    "bootcmd:\n- 2020-01-01\n",
    "bootcmd:\n- !!binary SGk=\n",
    "a: &a {b: c}\nbootcmd:\n- *a\n",
    "a: &a echo\nbootcmd:\n- *a\n-\n- [echo, 1, yes]\n- 1.2.3.4\n",
    "bootcmd: echo a\n",
    "bootcmd: {a: b}\n",
    "bootcmd:\npackages: [jq]\n",
    "a: &a {bootcmd: [1]}\n<<: *a\n",
    // Merge rules.
    "packages: [jq]\nmerge_how: list(append)\n",
    "packages: [jq]\nmerge_type: list(append)+str()\n",
    "packages: [jq]\nmerge_how: dict\n",
    "packages: [jq]\nmerge_how: [dict, list]\n",
    "packages: [jq]\nmerge_how:\n- {name: dict}\n",
    "packages: [jq]\nmerge_how:\n- {name: dict, settings: }\n",
    "packages: [jq]\nmerge_how: dict(recurse_array)+list(append)\n",
    "packages: [jq]\nmerge_how:\n- [list, append]\n- [dict]\n",
    "packages: [jq]\nmerge_type:\n- name: dict\n  settings: [replace]\n",
    // Keys that are no text, and numbers that cannot be stored.
    "a: b\n1: c\n",
    "a: b\nyes: c\n",
    "a: b\n~: c\n",
    "a: {b: c, 2020-01-01: d}\n",
    "a: {1: b, c: d}\n",
    "a: {1: b}\n",
    "00:16:3e:aa:00:01: b\n1.2.3.4: c\ny: d\n",
    // With these, cloud-init may not run boot commands.
    "cloud_init_modules: [write_files]\n",
    "launch-index: 0\npackages: [jq]\n",
    "'=': 1\n\"<<\": 2\n",
];

pub(super) const ARCHIVES: [&str; 18] = [
    "",
    "[]\n",
    "- '#!/bin/sh'\n- |\n  #cloud-config\n  packages: [jq]\n- content: 'packages: [é]'\n",
    "- type: text/x-shellscript-per-boot\n  content: a\n- type: text/cloud-boothook\n  content: |\n    #!/bin/sh\n",
    "- filename: a.sh\n  content: '#!/bin/sh'\n",
    "a: b\n",
    "- ''\n- 5\n",
    "- content: 5\n",
    "- content: '#!/bin/sh'\n  type: shellscript\n",
    "- content: '#!/bin/sh'\n  type: [text/x-shellscript]\n",
    "- content: '#!/bin/sh'\n  5: a\n",
    "- content: '#!/bin/sh'\n  a: 5\n",
    "- content: '#!/bin/sh'\n  a: \"b\\nc\"\n",
    "- \"#include\\nhttps://x/\"\n",
    "- '#!/bin/sh'\n- jq\n",
    "- '#!/bin/sh'\n- |\n  a: b\n  bootcmd:\n  - 5\n",
    "- |\n  #cloud-config-jsonp\n  [{\"op\": \"add\"}]\n",
    "- |\n  #cloud-config\n  a: [1, 2]\n  merge_how: list()\n",
];
