# What Hanse answers to `incoming` where there is no policy: what a peer offers is used as it is.
#
# Schema, identity and freshness of an offer are checked before, whatever the policy says. To change the answer, write
# modules of `package hanse.incoming`, or start from one of the library.
package hanse.defaults.incoming

allow := true
