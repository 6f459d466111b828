#!/usr/bin/env bash
# Exit code 0 when an NVIDIA display or 3D controller is on the PCI bus of this machine: the GPUs that
# can be recorded. Where there are only others, `make up` simulates, and says so.
#
# The bus is asked, not the driver: a GPU whose driver fails is still a GPU. The directory can be
# given as an argument.
devices=${1:-/sys/bus/pci/devices}
for device in "$devices"/*; do
  [ -r "$device/class" ] && [ -r "$device/vendor" ] || continue
  case $(cat "$device/class") in 0x03*) ;; *) continue ;; esac
  case $(cat "$device/vendor") in 0x10de) exit 0 ;; esac
done
exit 1
