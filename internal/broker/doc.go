// SPDX-License-Identifier: Apache-2.0

// Package broker makes clusters known to each other through a cluster that all of them are consumers of, and that none of them trusts.
//
//	relay    at the broker: copies Messages of members to those that they are for, word for word     relay.go
//	         and counts what passes                                                                  notes.go
//	marker   at the broker: says to all members what was counted of each                             marks.go
//	readers  at the broker: lets members read what is said to all                                    readers.go
//	member   at a member, for each of its brokers:                                                   member.go
//	         verifies each statement once                                                            readings.go
//	         introduces this cluster                                                                 introduce.go
//	         keeps a Member for each cluster that is heard                                           hear.go
//	         keeps with it what the broker says of that cluster                                      marked.go
//	         asks a member for an invitation, and uses it                                            ask.go
//	         answers members that ask for one                                                        answer.go
//	         asks members for offers and for room                                                    questions.go
//	         answers members that ask for that                                                       reply.go
//	         takes back what it has said, and forgets, when it is a member no more                   leave.go
//	ages     at a member: ends Members that nothing new is heard of                                  age.go
//
// What is relayed is signed by whoever says it (package trust), and judged by whoever takes it in. When an invitation has come that way, the
// two are peers as any others, and the broker is out of it.
package broker
