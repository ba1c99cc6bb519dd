"""Compares user-data before and after `virtfleetctl render`, as cloud-init loads it.

Standard input: a JSON object with `alone` (the output for no user-data) and `cases`, a list of
objects with `text` (a cloud-config, or an archive) and `output` (null: refused). Standard output: a
JSON object for each case with `loads` (cloud-init loads the text, keeps all of it, and can store it)
and `fault` (what is wrong with the output).
"""

import json
import logging
import re
import sys

import yaml
from cloudinit import atomic_helper, handlers, safeyaml, user_data, util
from cloudinit.handlers.cloud_config import CloudConfigPartHandler

logging.disable(logging.CRITICAL)
FAILED = object()
SHORT = "true\n"
CONFIG = "text/cloud-config"
HANDLED = {
    CONFIG,
    "text/cloud-boothook",
    "text/jinja2",
    "text/part-handler",
    "text/x-shellscript",
    "text/x-shellscript-per-boot",
    "text/x-shellscript-per-instance",
    "text/x-shellscript-per-once",
}


class NoPaths:
    """Nothing is read or written."""

    def get_ipath(self, _name):
        return None

    def get_ipath_cur(self, _name):
        return "/nonexistent"

    get_cpath = get_ipath_cur


PROCESSOR = user_data.UserDataProcessor(NoPaths())


def stored(text):
    """A cloud-config after all that cloud-init does with it up to its boot commands."""
    config = load(text)
    if config is FAILED or config == {}:
        return config
    try:
        handler = CloudConfigPartHandler(NoPaths())
        handler.handle_part(None, CONFIG, "part", text, None, {})
        merged = handler.cloud_buf
        if not handler.file_names or not merged.keys() >= config.keys() - {"merge_how", "merge_type"}:
            return FAILED
        safeyaml.dumps(merged)
        atomic_helper.json_dumps({**merged, "_doc": ""})
        if "bootcmd" in merged:
            util.shellify(merged["bootcmd"])
    except Exception:
        return FAILED
    return config


def archive(text):
    """The parts of an archive; FAILED if cloud-init drops one."""
    try:
        found = list(parts(text))
        items = yaml.safe_load(text) or []
    except Exception:
        return FAILED
    kept = all(
        kind in HANDLED and (kind != CONFIG or stored(payload) is not FAILED)
        for kind, payload in found
    )
    whole = isinstance(items, list) and len(found) == len(items)
    return found if kept and whole else FAILED


def load(text):
    try:
        loaded = util.load_yaml(text, default=FAILED)
        if loaded is FAILED and yaml.safe_load(text) is None:
            return {}
        return loaded
    except Exception:
        return FAILED


def parts(text):
    message = user_data.convert_string(text)
    if message.is_multipart() or text.startswith("#cloud-config-archive"):
        message = PROCESSOR.process(text)
        str(message)  # cloud-init stores it.
    for part in message.walk():
        if not user_data.is_skippable(part):
            payload = util.fully_decoded_payload(part)
            kind = part.get_content_type()
            if kind in user_data.TYPE_NEEDED:
                kind = handlers.type_from_starts_with(payload)
            yield kind, payload


def shortened(text, script):
    """With a short script: PyYAML takes 10 ms to read the whole one."""
    lines = script.splitlines()
    first = re.search("^( *)  " + re.escape(lines[0]) + "$", text, re.MULTILINE)
    indent = first.group(1) + "  "
    body = "".join(indent + line + "\n" if line else "\n" for line in lines)
    if body not in text:
        raise ValueError("the script is not whole")
    return text.replace(body, indent + SHORT, 1)


def fault(text, before, output, script, whole):
    found = list(parts(output))
    kinds = [kind for kind, _ in found]
    if isinstance(before, list):
        return None if script in found[0][1] and found[1:] == before else f"parts {kinds}"
    if kinds == ["text/cloud-boothook", CONFIG]:
        after = stored(found[1][1])
        if script not in found[0][1]:
            return "the boothook has no script"
        if found[1][1] != text:
            return "another text"
    elif kinds == [CONFIG]:
        config = found[0][1] if whole else shortened(found[0][1], script)
        after = stored(config)
        if after is FAILED:
            return "not loaded"
        if after["bootcmd"].pop(0) != (script if whole else SHORT):
            return "another script"
        if not after["bootcmd"] and "bootcmd" not in before:
            del after["bootcmd"]
    else:
        return f"parts {kinds}"
    return None if repr(after) == repr(before) else f"{after!r} and not {before!r}"


def main():
    asked = json.load(sys.stdin)
    script = load(asked["alone"])["bootcmd"][0]
    results = []
    accepted = 0
    for case in asked["cases"]:
        text, output = case["text"], case["output"]
        before = archive(text) if text.startswith("#cloud-config-archive") else stored(text)
        result = {"loads": before is not FAILED, "fault": None}
        if output is not None:
            accepted += 1
            try:
                result["fault"] = (
                    fault(text, before, output, script, whole=accepted <= 20)
                    if result["loads"]
                    else "the text is not loaded"
                )
            except Exception as error:
                result["fault"] = repr(error)
        results.append(result)
    json.dump(results, sys.stdout)


main()
