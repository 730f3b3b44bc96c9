"""Tries operations with proxmoxer and says what became of each, one JSON object in all.

    proxmox_operations.py HOST FOREIGN_TASK
"""

import json
import sys

from proxmoxer import ProxmoxAPI, ResourceException
from proxmoxer.tools import Tasks

host, foreign = sys.argv[1:]
# The gate puts the real token in this one's place.
proxmox = ProxmoxAPI(host, user="agent@pve", token_name="agent", token_value="injected-by-portcullis", timeout=60)
node = proxmox.nodes("pve")
NEW = {
    "ostemplate": "local:vztmpl/debian-12.tar.zst",
    "unprivileged": 1,
    "rootfs": "local:8",
    "net0": "name=eth0,bridge=vmbr1,ip=dhcp",
    "features": "nesting=1",
    "description": "two\nlines",
}


def made(**more):
    return node.lxc.post(**{**NEW, "vmid": 150, **more})


def followed():
    return Tasks.blocking_status(proxmox, node.lxc(101).status.reboot.post(), timeout=30)["exitstatus"]


operations = {
    "read": lambda: node.lxc(101).status.current.get(),
    "read another": lambda: node.lxc(500).status.current.get(),
    "reboot": lambda: node.lxc(101).status.reboot.post(),
    "reboot another": lambda: node.lxc(500).status.reboot.post(),
    "reboot and follow": followed,
    "follow another": lambda: proxmox.nodes("pve").tasks(foreign).status.get(),
    "make": made,
    "make another": lambda: made(vmid=500),
    "make privileged": lambda: made(unprivileged=0),
    "make with a path": lambda: made(mp0="/etc,mp=/host"),
    "make with a hook": lambda: made(hookscript="local:snippets/x.sh"),
    "make with keyctl": lambda: made(features="nesting=1,keyctl=1"),
    "make elsewhere": lambda: made(rootfs="nfs:8"),
    "clone": lambda: node.lxc(101).clone.post(newid=151),
    "clone to another": lambda: node.lxc(101).clone.post(newid=500),
    "clone twice": lambda: proxmox("nodes/pve/lxc/101/clone?newid=151").post(newid=500),
    "snapshot": lambda: node.qemu(101).snapshot.post(snapname="before"),
    "change": lambda: node.qemu(101).config.put(memory=512, delete="net1"),
    "change arguments": lambda: node.qemu(101).config.put(args="-S"),
    "delete": lambda: node.lxc(101).delete(purge=1),
    "console": lambda: node.lxc(101).vncproxy.post(websocket=1),
    "execute": lambda: node.qemu(101).agent.exec.post(command="ls -l"),
    "users": lambda: proxmox.access.users.get(),
}


def tried(operation):
    try:
        operation()
        return "done"
    except ResourceException as error:
        return f"{error} {error.content}"


print(json.dumps({name: tried(operation) for name, operation in operations.items()}))
