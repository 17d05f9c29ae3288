#!/usr/bin/env python3
"""Checks deploy/kubernetes_mpijob.yaml against the schema of MPIJob, every field known and of its type.

    tests/cluster/mpijob.py mpi-operator.yaml     the operator's deploy/v2beta1/mpi-operator.yaml, or `kubectl get crd mpijobs.kubeflow.org -o yaml`
"""
import pathlib
import sys

import yaml

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "number": (int, float)}


def schemas(path):
    for document in yaml.safe_load_all(open(path, encoding="utf-8")):
        if document and document.get("kind") == "CustomResourceDefinition":
            for version in document["spec"]["versions"]:
                yield document["spec"], version["name"], version["schema"]["openAPIV3Schema"]


def problems(value, schema, where):
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string") and isinstance(value, (int, str)):
        return
    if kind and (not isinstance(value, TYPES[kind]) or kind == "integer" and isinstance(value, bool)):
        yield f"{where}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from problems(item, schema.get("items", {}), f"{where}[{i}]")
    if isinstance(value, dict):
        known, free = schema.get("properties", {}), schema.get("additionalProperties")
        for key in schema.get("required", []):
            if key not in value:
                yield f"{where}: {key} is missing"
        for key, inner in value.items():
            if key in known:
                yield from problems(inner, known[key], f"{where}.{key}")
            elif isinstance(free, dict):
                yield from problems(inner, free, f"{where}.{key}")
            elif known and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{where}: there is no field {key}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    job = yaml.safe_load(open(pathlib.Path(__file__).parents[2] / "deploy/kubernetes_mpijob.yaml", encoding="utf-8"))
    for spec, version, schema in schemas(sys.argv[1]):
        if f"{spec['group']}/{version}" != job["apiVersion"] or spec["names"]["kind"] != job["kind"]:
            continue
        found = [line for line in problems(job, schema, job["kind"])
                 if not line.startswith("MPIJob: there is no field")]
        print("\n".join(found) or f"deploy/kubernetes_mpijob.yaml is an {job['kind']} of {job['apiVersion']}")
        return 1 if found else 0
    sys.exit(f"{sys.argv[1]} has no schema of {job['apiVersion']}")


if __name__ == "__main__":
    sys.exit(main())
