"""Reads the version and reboots a container with proxmoxer.

    proxmox.py HOST CONTAINER
"""

import sys

from proxmoxer import ProxmoxAPI

host, container = sys.argv[1:]
# The gate puts the real token in this one's place.
proxmox = ProxmoxAPI(host, user="agent@pve", token_name="agent", token_value="injected-by-portcullis", timeout=60)
print(proxmox.version.get()["version"])
print(proxmox.nodes("pve").lxc(container).status.reboot.post())
