# What Hanse answers to `quote` where there is no policy: a consumer is offered what is free for it, at the prices that it is
# advertised. The interest is the share of what is free that would be left.
#
# To change the answer, write modules of `package hanse.quote`, or start from one of the library.
package hanse.defaults.quote

allow := true
