#!/usr/bin/env bash
# Shows what Hanse does, on two real clusters of this machine: demo.sh up|down. Both can be run again at any time.
set -euo pipefail
cd "$(dirname "$0")/.."
state=.testbed/demo
testbed=(bin/testbed --state "$state")
timeout=180s

if [ -t 1 ]; then bold=$'\e[1;36m' plain=$'\e[0m'; else bold='' plain=''; fi

heading() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }

# show prints a command as one would type it.
show() { printf '$ %s\n' "$(words "$@")"; }

# words quotes only what a shell needs quoted.
words() {
	local word line=
	for word; do
		[[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
		line+="$word "
	done
	printf '%s' "${line% }"
}

run() { show "$@"; "$@"; }

need_root() {
	[ "$(id -u)" = 0 ] || {
		echo "The demo runs real kubelets and containers, and these need root: sudo make $1" >&2
		exit 1
	}
}

# explain prints, if the demo has failed, what one would look at then.
explain() {
	local code=$?
	[ "$code" != 0 ] || return 0
	set +e
	heading "The demo failed. What there is:" >&2
	{
		"${testbed[@]}" status
		for cluster in lubeck hamburg; do
			for what in "peers,nodes" "pods -A -o wide" "namespaceoffloadings,namespacemappings,advertisements,peeringclaims,shadowpods -A"; do
				# shellcheck disable=SC2086 # several words
				kubectl --context "$cluster" get $what
			done
			kubectl --context "$cluster" logs -n hanse-system -l app.kubernetes.io/name=hanse --tail=20 --prefix
		done
		kubectl --context lubeck get events -n demo
		echo "The clusters are kept. See also the logs under $state. Remove all with: make demo-down"
	} >&2
}

clusters() {
	heading "Two real clusters on this machine: lubeck and hamburg"
	run "${testbed[@]}" up lubeck hamburg --workers 1
	run "${testbed[@]}" load bin/hanse.tar lubeck hamburg
	KUBECONFIG=$("${testbed[@]}" kubeconfig lubeck):$("${testbed[@]}" kubeconfig hamburg)
	export KUBECONFIG PATH="$PWD/bin:$PATH"
	trap explain EXIT
}

install() {
	heading "Hanse in each of them, with a gateway: both use the very same addresses, and their pods are to reach each other"
	local cluster
	for cluster in lubeck hamburg; do
		run kubectl hanse install --context "$cluster" --cluster-id "$cluster" --image "$(cat bin/hanse.image)" --set gateway.enabled=true --wait
	done
}

# peer_is_ready prints what lubeck says of its peer hamburg, and nothing if it knows none.
peer_is_ready() {
	kubectl --context lubeck get peer hamburg --ignore-not-found -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}'
}

peer() {
	heading "They become peers: hamburg invites, lubeck joins. Each may run pods in the other, which shows up as a node"
	if [ "$(peer_is_ready)" = True ]; then
		echo "They are peers already: this demo has run before."
	else
		echo '$ kubectl hanse invite lubeck --mutual --context hamburg | kubectl hanse join - --mutual --context lubeck'
		kubectl hanse invite lubeck --mutual --context hamburg | kubectl hanse join - --mutual --context lubeck
	fi
	run kubectl --context lubeck wait --for=create node/hanse-hamburg --timeout="$timeout"
	run kubectl --context lubeck wait --for=condition=Ready node/hanse-hamburg --timeout="$timeout"
	run kubectl --context lubeck wait --for=condition=Connected peer/hamburg --timeout="$timeout"
	run kubectl --context lubeck get nodes
}

offload() {
	heading "A namespace of lubeck whose pods may run in hamburg once lubeck is full"
	run kubectl --context lubeck apply -f demo/namespace.yaml
	run kubectl hanse offload demo --context lubeck --strategy LocalAndRemote
	run kubectl --context lubeck wait -n demo --for=condition=Ready namespaceoffloading/offloading --timeout="$timeout"
}

# share prints an eighth of the processors of lubeck's only real node, such as 250m.
share() {
	local cpu
	cpu=$(kubectl --context lubeck get nodes -l 'hanse.dev/type!=virtual-node' -o jsonpath='{.items[0].status.allocatable.cpu}')
	case $cpu in
	*m) echo "$((${cpu%m} / 8))m" ;;
	*) echo "$((cpu * 1000 / 8))m" ;;
	esac
}

deploy() {
	local cpu
	heading "An application of three parts, each with a Service: a cart that must run in hamburg, a stock that must not leave lubeck"
	run kubectl --context lubeck apply -f demo/cart-and-stock.yaml
	cpu=$(share)
	heading "And a shop that is too big for lubeck: ten replicas of $cpu, of which fewer than nine fit"
	echo "$ sed 's/cpu: 100m/cpu: $cpu/' demo/shop.yaml | kubectl --context lubeck apply -f -"
	sed "s/cpu: 100m/cpu: $cpu/" demo/shop.yaml | kubectl --context lubeck apply -f -
	local part
	for part in shop cart stock; do
		run kubectl --context lubeck rollout status "deployment/$part" -n demo --timeout="$timeout"
	done
}

# named prints the name of a pod of lubeck's that has these labels.
named() { kubectl --context lubeck get pods -n demo -l "$1" -o jsonpath='{.items[0].metadata.name}'; }

# ask has a pod ask a Service, and prints which pod answers, and from which node: ask POD SERVICE [TIMES]
ask() {
	local pod=$1 service=$2 times=${3:-1}
	kubectl --context lubeck exec -n demo "$pod" -c shell -- sh -c "for i in \$(seq $times); do
		wget -qO- http://$service/ | sed -nE 's/^  \"(pod|node)\": \"(.*)\",/\2/p' | xargs printf '%s asks http://%s: %s on %s answers\n' $pod $service
	done"
}

talk() {
	heading "The parts talk through Services of lubeck, by name, as if all were in one cluster"
	echo "$ kubectl exec POD -- wget -qO- http://SERVICE"
	ask "$(one_remote)" cart
	ask "$(named app=cart)" stock
	ask "$(named app=stock)" shop 6
	heading "Whether all of the network works, tried with pods of its own"
	run kubectl hanse test network --context lubeck
}

# one_remote prints the name of a pod that runs in hamburg and is to stay.
one_remote() {
	kubectl --context lubeck get pods -n demo -l app=shop --field-selector spec.nodeName=hanse-hamburg -o go-template='
		{{- range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}}{{"\n"}}{{end}}{{end}}' | sed -n 1p
}

look() {
	local remote
	heading "All as lubeck sees them, those on node hanse-hamburg too"
	run kubectl --context lubeck get pods -n demo -o wide
	heading "Those that hamburg really runs, in a namespace that stands for lubeck's"
	run kubectl --context hamburg get pods -A -l app=shop -o wide

	remote=$(one_remote)
	heading "Into one of these from lubeck: a request to its server, from inside the pod"
	run kubectl --context lubeck exec -n demo "$remote" -c shell -- sh -c 'wget -qO- http://127.0.0.1:8080/hello | head -n 7'
	heading "And its logs"
	run kubectl --context lubeck logs -n demo "$remote" -c web
	heading "What Hanse says of all this"
	run kubectl hanse status --context lubeck
}

next() {
	heading "Try it yourself"
	cat <<END
export PATH=$PWD/bin:\$PATH
export KUBECONFIG=$KUBECONFIG

# More replicas: they go to hamburg.
kubectl --context lubeck scale deployment/shop -n demo --replicas=12

# Somebody in hamburg deletes the pods there: hamburg makes them again, and lubeck's pods stay the same objects.
kubectl --context hamburg delete pods -A -l app=shop

# No network between the two: what runs in hamburg runs on.
bin/testbed --state $state cut lubeck hamburg
bin/testbed --state $state heal lubeck hamburg

# What hamburg offers, as a node and as the message that it sent. Every kind explains itself.
kubectl --context lubeck describe node hanse-hamburg
kubectl --context lubeck get advertisements -n hanse-peer-hamburg hamburg -o yaml
kubectl --context lubeck explain namespaceoffloading.spec

# How the tunnel is, and how fast.
kubectl --context lubeck get connections -A
kubectl hanse bench network --context lubeck

# The two part: one side says it, and nothing of the other is left in either.
kubectl hanse unpeer hamburg --context lubeck --drain=wait

Remove everything again: make demo-down
END
}

up() {
	need_root demo
	clusters
	install
	peer
	offload
	deploy
	look
	talk
	next
}

down() {
	[ -d "$state" ] || { echo "there is no demo to remove"; return; }
	need_root demo-down
	[ -x bin/testbed ] || { echo "bin/testbed is needed to remove the clusters: make testbed" >&2; exit 1; }
	"${testbed[@]}" down
	rmdir .testbed 2>/dev/null || true # unless others use it
}

case ${1:-} in
up | down) "$1" ;;
*)
	echo "usage: hack/demo.sh up|down" >&2
	exit 2
	;;
esac
