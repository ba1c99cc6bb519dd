#!/bin/sh
# Makes or replaces the kubeconfig with which the collector connects to one user cluster, and stores
# it in a Secret on the infra cluster. The collector uses it at once. Run it again before the token
# expires, for example from cron.
#
#   kubeconfig.sh --name blue --user-cluster blue.admin.kubeconfig --infra infra.kubeconfig [options]
#
#   --name NAME           the UserCluster's name; the Secret is virtfleet-kubeconfigs/kubeconfig-NAME
#   --user-cluster FILE   a kubeconfig of an admin of the user cluster; apply rbac.yaml and
#                         admission.yaml there first
#   --infra FILE          a kubeconfig of the infra cluster that may write that Secret
#   --server URL          https://host:port for the collector, if it differs from FILE
#   --duration TIME       validity of the token; default 720h. The user cluster may shorten it
#   --revoke              delete and recreate the ServiceAccount first: all older tokens become
#                         invalid at once
set -eu

usage() {
    sed -n 's/^# \{0,1\}//; 2,15p' "$0" >&2
    exit 2
}

name='' user='' infra='' server='' duration=720h revoke=''
while [ $# -gt 0 ]; do
    case $1 in
    --revoke) revoke=yes && shift && continue ;;
    --name | --user-cluster | --infra | --server | --duration) [ $# -ge 2 ] || usage ;;
    *) usage ;;
    esac
    case $1 in
    --name) name=$2 ;;
    --user-cluster) user=$2 ;;
    --infra) infra=$2 ;;
    --server) server=$2 ;;
    --duration) duration=$2 ;;
    esac
    shift 2
done
[ -n "$name" ] && [ -n "$user" ] && [ -n "$infra" ] || usage

in_user_cluster() { kubectl --kubeconfig "$user" "$@"; }
setting() { in_user_cluster config view --raw --minify --flatten -o "jsonpath={.clusters[0].cluster.$1}"; }

[ -n "$server" ] || server=$(setting server)
case $server in
https://*) ;;
*) echo "the server of $user is $server, which is not an https URL; set https://host:port with --server" >&2 && exit 1 ;;
esac
ca=$(setting certificate-authority-data)
[ -n "$ca" ] || { echo "$user has no certificate-authority-data: the API server could not be verified" >&2 && exit 1; }

if [ -n "$revoke" ]; then
    in_user_cluster --namespace virtfleet delete serviceaccount virtfleet-collector --ignore-not-found
    in_user_cluster --namespace virtfleet create serviceaccount virtfleet-collector
fi
token=$(in_user_cluster --namespace virtfleet create token virtfleet-collector --duration="$duration")

# Pipes only, so that the token is in no file and on no command line.
kubeconfig() {
    cat <<YAML
apiVersion: v1
kind: Config
current-context: user-cluster
clusters:
- name: user-cluster
  cluster:
    server: $server
    certificate-authority-data: $ca
users:
- name: virtfleet-collector
  user:
    token: $token
contexts:
- name: user-cluster
  context: { cluster: user-cluster, user: virtfleet-collector }
YAML
}
kubeconfig |
    kubectl create secret generic "kubeconfig-$name" --namespace virtfleet-kubeconfigs \
        --from-file=kubeconfig=/dev/stdin --dry-run=client --output yaml |
    kubectl --kubeconfig "$infra" apply --server-side --force-conflicts --filename -
echo "Run this again within $duration." >&2
