"""Writes the OCI image: what is given as its root, as one layer, with the settings of a service without privileges.

Usage: image.py ROOT ARCHIVE ARCHITECTURE VERSION COMMIT, with SOURCE_DATE_EPOCH as the time of everything in it. The archive is
an OCI layout in a tar, which `skopeo copy oci-archive:…` and `podman load` read, with the one file more that `docker load` wants.
Equal roots make equal archives.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile

USER = 10001
DATA = "data"
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
SECOND = 10**9
MEDIA = "application/vnd.oci.image."


def entry(name, kind=tarfile.REGTYPE, mode=0o644, size=0):
    """Returns a tar entry that holds nothing of the machine or the moment it is made on."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.mtime = kind, mode, size, EPOCH
    return info


def layer(root):
    """Returns the layer's tar: all of the root in the order of names, and the data folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        paths = []
        for folder, folders, files in os.walk(root):
            paths += [os.path.join(folder, name) for name in folders + files]
        for path in sorted(paths):
            name = os.path.relpath(path, root)
            if os.path.islink(path):
                info = entry(name, tarfile.SYMTYPE, 0o777)
                info.linkname = os.readlink(path)
                tar.addfile(info)
            elif os.path.isdir(path):
                tar.addfile(entry(name, tarfile.DIRTYPE, 0o755))
            else:
                mode = 0o755 if os.access(path, os.X_OK) else 0o644
                with open(path, "rb") as file:
                    tar.addfile(entry(name, mode=mode, size=os.path.getsize(path)), file)
        data = entry(DATA, tarfile.DIRTYPE, 0o700)
        data.uid = data.gid = USER
        tar.addfile(data)
    return out.getvalue()


def config(architecture, version, commit, layer_digest):
    """Returns the image's configuration. The health check is Docker's, which the specification of OCI lets stand."""
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/bin", f"ISOBAR_DATA=/{DATA}", "ISOBAR_LISTEN=0.0.0.0:8080"],
            "Entrypoint": ["/usr/bin/isobar"],
            "Cmd": ["serve"],
            "ExposedPorts": {"8080/tcp": {}},
            "Volumes": {f"/{DATA}": {}},
            "WorkingDir": f"/{DATA}",
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/isobar", "health"],
                "Interval": 30 * SECOND,
                "Timeout": 10 * SECOND,
                "StartPeriod": 60 * SECOND,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "Isobar",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.revision": commit,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        "history": [{"created": created, "created_by": "scripts/package"}],
    }


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def text(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def blob(descriptor):
    """Returns the path of what a descriptor names."""
    return "blobs/" + descriptor["digest"].replace(":", "/")


def main():
    root, archive, architecture, version, commit = sys.argv[1:]
    blobs = {}

    def add(kind, content):
        blobs[digest(content)] = content
        return {"mediaType": MEDIA + kind, "digest": digest(content), "size": len(content)}

    tar = layer(root)
    settings = add("config.v1+json", text(config(architecture, version, commit, digest(tar))))
    layers = [add("layer.v1.tar+gzip", gzip.compress(tar, 9, mtime=0))]
    manifest = {"schemaVersion": 2, "mediaType": MEDIA + "manifest.v1+json", "config": settings, "layers": layers}
    described = add("manifest.v1+json", text(manifest))
    name = f"isobar:{version}"
    described["annotations"] = {
        "io.containerd.image.name": "docker.io/library/" + name,
        "org.opencontainers.image.ref.name": name,
    }
    described["platform"] = {"architecture": architecture, "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": MEDIA + "index.v1+json", "manifests": [described]}
    place = [{"Config": blob(settings), "RepoTags": [name], "Layers": [blob(layers[0])]}]
    files = {"manifest.json": text(place), "oci-layout": text({"imageLayoutVersion": "1.0.0"}), "index.json": text(index)}
    files |= {"blobs/" + key.replace(":", "/"): content for key, content in blobs.items()}
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as out:
        for folder in ("blobs", "blobs/sha256"):
            out.addfile(entry(folder, tarfile.DIRTYPE, 0o755))
        for name in sorted(files):
            out.addfile(entry(name, size=len(files[name])), io.BytesIO(files[name]))


main()
