"""Holds documents against a JSON schema, and the schema against typos.

    validate.py SCHEMA FILE...     FILE is .toml or .json

Prints a line of JSON for each file: {file, errors, unseen}. `errors` is what the schema finds wrong; `unseen` are the paths
of keys that the schema knows and that may be misspelled without an error.
"""

import copy
import json
import pathlib
import sys
import tomllib

import jsonschema


def resolved(schema, root):
    while "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        schema = root["$defs"][name] | {key: value for key, value in schema.items() if key != "$ref"}
    return schema


def typos(schema, root, document, path=()):
    """The paths of keys that the schema knows by their names."""
    schema = resolved(schema, root)
    for alternative in schema.get("anyOf", []):
        yield from typos(alternative, root, document, path)
    if isinstance(document, list) and "items" in schema:
        for at, item in enumerate(document):
            yield from typos(schema["items"], root, item, (*path, at))
    if not isinstance(document, dict):
        return
    for key, value in document.items():
        if key in schema.get("properties", {}):
            yield (*path, key)
            yield from typos(schema["properties"][key], root, value, (*path, key))
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from typos(schema["additionalProperties"], root, value, (*path, key))


def misspelled(document, path):
    document = copy.deepcopy(document)
    *around, key = path
    table = document
    for part in around:
        table = table[part]
    table[f"{key}x"] = table.pop(key)
    return document


def main():
    schema, *files = map(pathlib.Path, sys.argv[1:])
    schema = json.loads(schema.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for file in files:
        parse = tomllib.loads if file.suffix == ".toml" else json.loads
        document = parse(file.read_text())
        errors = [f"{error.json_path}: {error.message}"[:300] for error in validator.iter_errors(document)]
        paths = sorted(set(typos(schema, schema, document)), key=str)
        unseen = [".".join(map(str, path)) for path in paths if validator.is_valid(misspelled(document, path))]
        print(json.dumps({"file": str(file), "errors": errors, "keys": len(paths), "unseen": unseen}))


if __name__ == "__main__":
    main()
