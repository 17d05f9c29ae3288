#!/usr/bin/env python3
"""Checks deploy/kubernetes_mpijob.yaml against a schema of MPIJob: every field known, of its type.

    tests/cluster/mpijob.py              mpijob_schema.json beside this file: the fields of v2beta1
                                         that a job of ours may use, as their documentation has them
    tests/cluster/mpijob.py FILE         the operator's own: its deploy/v2beta1/mpi-operator.yaml,
                                         or `kubectl get crd mpijobs.kubeflow.org -o yaml`

The schema is then tried itself: every object of the job with a field that nobody knows, without
each field that it must have, and every value as one of another type must be refused. Exit status
0: all of it held; 77: python3 has no yaml here.
"""
import copy
import json
import pathlib
import sys

try:
    import yaml
except ImportError:
    print("mpijob.py: not run: python3 has no module yaml (Debian: python3-yaml)")
    sys.exit(77)

HERE = pathlib.Path(__file__).parent
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool,
         "number": (int, float)}
# What every object of Kubernetes has; the operator's own schema leaves its fields open.
TOP = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}


def operators_schema(path, job):
    for document in yaml.safe_load_all(open(path, encoding="utf-8")):
        if not document or document.get("kind") != "CustomResourceDefinition":
            continue
        spec = document["spec"]
        for version in spec["versions"]:
            if f"{spec['group']}/{version['name']}" == job["apiVersion"] \
                    and spec["names"]["kind"] == job["kind"]:
                schema = version["schema"]["openAPIV3Schema"]
                schema["properties"] = {**TOP, **schema["properties"]}
                return schema
    sys.exit(f"{path} has no schema of {job['apiVersion']}")


def problems(value, schema, where, root):
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"]]
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, (int, str)) or isinstance(value, bool):
            yield f"{where}: {value!r} is neither a number nor a string"
        return
    if kind and (not isinstance(value, TYPES[kind])
                 or kind in ("integer", "number") and isinstance(value, bool)):
        yield f"{where}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where}: {value} is less than {schema['minimum']}"
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from problems(item, schema.get("items", {}), f"{where}[{i}]", root)
    if isinstance(value, dict):
        known, free = schema.get("properties", {}), schema.get("additionalProperties")
        for key in schema.get("required", []):
            if key not in value:
                yield f"{where}: {key} is missing"
        for key, inner in value.items():
            if key in known:
                yield from problems(inner, known[key], f"{where}.{key}", root)
            elif isinstance(free, dict):
                yield from problems(inner, free, f"{where}.{key}", root)
            elif known and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{where}: there is no field {key}"


def places(value, path=()):
    yield path, value
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, path + (key,))


def changed(job, path, change):
    """The job with the value in that place changed."""
    if not path:
        return change(copy.deepcopy(job))
    out = copy.deepcopy(job)
    inside = out
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = change(inside[path[-1]])
    return out


def broken(job):
    """Jobs that are none, each with what is wrong with it."""
    for path, value in places(job):
        where = ".".join(map(str, path)) or "the job"
        if isinstance(value, dict):
            yield f"{where} is a list", changed(job, path, lambda v: [v])
            if path and path[-1] not in ("limits", "requests"):  # which take any name
                yield f"{where} has a field unknwon", changed(
                    job, path, lambda v: {**v, "unknwon": 1})
        else:
            yield f"{where} is an object", changed(job, path, lambda v: {"value": v})
    yield "a field unknwon at the top", {**job, "unknwon": 1}
    for path in (("spec", "mpiReplicaSpecs"), ("spec",)):
        yield f"no {path[-1]}", changed(
            job, path[:-1], lambda v, key=path[-1]: {k: i for k, i in v.items() if k != key})
    for key in ("restartPolicy", "restartPolicies"):
        yield f"{key}: Sometimes", changed(job, ("spec", "mpiReplicaSpecs", "Worker"),
                                           lambda v, key=key: {**v, key: "Sometimes"})


def main():
    job = yaml.safe_load(open(HERE.parents[1] / "deploy/kubernetes_mpijob.yaml", encoding="utf-8"))
    own = len(sys.argv) < 2
    schema = json.load(open(HERE / "mpijob_schema.json", encoding="utf-8")) if own \
        else operators_schema(sys.argv[1], job)
    found = list(problems(job, schema, job["kind"], schema))
    tried = 0
    for what, wrong in broken(job) if own else ():
        tried += 1
        if not list(problems(wrong, schema, "MPIJob", schema)):
            found.append(f"the schema takes a job in which {what}")
    print("\n".join(found) or f"deploy/kubernetes_mpijob.yaml is an {job['kind']} of "
          f"{job['apiVersion']}; {tried} broken ones were refused")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
