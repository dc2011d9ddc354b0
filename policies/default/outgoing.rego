# What Hanse answers to `outgoing` where there is no policy: each consumer is offered what is free for it, as it is.
#
# To change the answer, write modules of `package hanse.outgoing`, or start from one of the library.
package hanse.defaults.outgoing

allow := true
